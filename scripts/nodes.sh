# shellcheck shell=bash
# Login nodes that share a directory, for scripts/demo and scripts/sample-launcher/demo: namespaces (name, processes, boot
# id, clock since boot); the directory, the files, the processes and the commands are real. Sourced, in the project's directory.
#
# Ends with 77 where no namespaces can be made. LEASEHOLD_BIN=FILE is used instead of a build.
# shellcheck disable=SC2016 # what stands in single quotes is expanded on a node
as=(env)
if ! why=$(unshare --uts --mount --pid --fork --time true 2>&1); then
    as=(unshare --user --map-root-user)
    if ! too=$("${as[@]}" --uts --mount --pid --fork --time mount -t proc proc /proc 2>&1); then
        echo "$0 needs root or unprivileged user namespaces, and no chroot, to make two hosts out of one: $why; $too" >&2
        exit 77
    fi
fi
if [ -z "${LEASEHOLD_BIN-}" ]; then
    cargo build --release --quiet
    LEASEHOLD_BIN=${CARGO_TARGET_DIR:-target}/release/leasehold
fi
LEASEHOLD_BIN=$(realpath "$LEASEHOLD_BIN")
unset LEASEHOLD LEASEHOLD_HOST_ID LEASEHOLD_TOKEN LEASEHOLD_PATH

work=$(mktemp -d)
shared=$work/home
mkdir "$shared" "$work/bin"
ln -s "$LEASEHOLD_BIN" "$work/bin/leasehold"
declare -A node=()

# A node's processes, mounts and name go with its first process.
power_off() {
    { kill -KILL "${node[$1]}" && wait "${node[$1]}"; } || true
    unset "node[$1]"
} 2> /dev/null
tidy_up() {
    for name in "${!node[@]}"; do power_off "$name"; done
    rm -rf "$work"
}
trap tidy_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# boot NAME NUMBER: a new boot id, a clock that starts at 0, and pids that start at NUMBER.
boot() {
    local name=$1 second
    cat /proc/sys/kernel/random/uuid > "$work/$name.boot"
    [ -e "$work/$name.machine" ] || tr -d - < /proc/sys/kernel/random/uuid > "$work/$name.machine"
    second=$(cut -d. -f1 /proc/uptime)
    # Clocks are set in whole seconds, and what was written before the boot must not look later than it.
    while [ "$(cut -d. -f1 /proc/uptime)" = "$second" ]; do sleep 0.05; done
    setpriv --pdeathsig KILL "${as[@]}" unshare --uts --mount --pid --fork --kill-child --time \
        --boottime "-$((second + 1))" sh -ec '
            hostname "$1"
            mount -t proc proc /proc
            mount --bind "$2.boot" /proc/sys/kernel/random/boot_id
            [ ! -e /etc/machine-id ] || mount --bind "$2.machine" /etc/machine-id
            echo "$3" > /proc/sys/kernel/ns_last_pid || true
            : > "$2.up"
            # As the first process it adopts the orphans, and wait reaps them.
            while :; do sleep 600 & wait $!; done' init "$name" "$work/$name" "$2" &
    node[$name]=$!
    until [ -e "$work/$name.up" ]; do
        kill -0 "${node[$name]}" || exit 1
        sleep 0.01
    done
    rm "$work/$name.up"
    echo "$name is up, boot id $(cat "$work/$name.boot")"
}

# enter NAME COMMAND: runs it there, in the shared directory. In a pid namespace, as in any container, name and machine id
# prove nothing after a reboot, so each node also has an id from its operator.
enter() {
    local ns=/proc/${node[$1]}/ns user=()
    [ "${as[0]}" = env ] || user=(--user="$ns/user" --preserve-credentials)
    LEASEHOLD_HOST_ID=$1 PATH=$work/bin:$PATH nsenter "${user[@]}" --uts="$ns/uts" --mount="$ns/mnt" \
        --time="$ns/time_for_children" --pid="$ns/pid_for_children" sh -c 'cd "$1"; eval "$2"' "$1" "$shared" "$2"
}

# on NAME EXIT PATTERN COMMAND: shows the command and what came of it, which must be as expected.
on() {
    local code=0 out
    printf '%s$ %s\n' "$1" "$4"
    out=$(enter "$1" "$4" 2>&1) || code=$?
    [ -z "$out" ] || printf '    %s\n' "${out//$'\n'/$'\n    '}"
    [ "$code" = 0 ] || echo "    (exit $code)"
    if [ "$code" != "$2" ] || ! grep -qE -- "$3" <<< "$out"; then
        echo "NOT AS EXPECTED: exit $2, and in the output: $3" >&2
        exit 1
    fi
}

say() { printf '\n== %s\n' "$1"; }
