# shellcheck shell=sh disable=SC2154
# The lease of a run directory: bridge.pid.lease says whose process bridge.pid names. Sourced, with $here and $run set.

# shellcheck source=scripts/leasehold.sh
. "$here/../../leasehold.sh"
lease=$run/bridge.pid.lease

# Says what is known about the lease and ends with a code.
refuse() {
    echo "$2: the bridge is $lh_verdict ($lh_reason), host $lh_host, process $lh_pid; leasehold judge $lease tells more" >&2
    exit "$1"
}

# Makes this very process the one that bridge.pid names, with thread and address in the files beside it that others read. Ends
# the script where that cannot be; $mine names the claim.
take_over() { # THREAD ADDRESS
    # bridge.pid has to name us before the lease can be bound to it, so only one process at a time may be about to write it.
    lh_claim "$run/bridge.start.lease" || exit "$?"
    starting=$lh_token
    trap 'lh_release "$run/bridge.start.lease" "$starting"' EXIT
    lh_may spawn "$lease" || refuse "$?" "not taken over"
    if ! no_old_launcher_wrote; then
        echo "not taken over: $run/bridge.pid is of a launcher without leases, and process $(cat "$run/bridge.pid") of any host" >&2
        exit 2
    fi
    echo "$$" >"$run/.bridge.pid.new"
    mv "$run/.bridge.pid.new" "$run/bridge.pid"
    lh_claim "$lease" --binds bridge.pid --set "thread=$1" --set "address=$2" || exit "$?"
    mine=$lh_token
    echo "$1" >"$run/bridge.thread"
    echo "$2" >"$run/bridge.addr"
    trap - EXIT
    lh_release "$run/bridge.start.lease" "$starting"
}

# Only while launchers without leases may be about; to be removed with the last of them. A bridge.pid that is not accounted for
# by the lease's last owner is theirs, of whatever host: not to be told.
no_old_launcher_wrote() {
    [ -e "$run/bridge.pid" ] || return 0
    # The lease is bound: it is not called dead when bridge.pid names another process.
    [ "$lh_verdict" != dead ] || return 0
    recorded=$("${LEASEHOLD:-leasehold}" show "$lease" --field pid 2>/dev/null) || return 2
    [ "$recorded" = "$(cat "$run/bridge.pid")" ]
}

give_back() {
    # Not by the name alone: it may be another's by now.
    lh_guard "$lease" "$mine" 5s -- rm -f "$run/bridge.pid" "$run/bridge.addr" "$run/bridge.thread" || return
    lh_release "$lease" "$mine"
}
