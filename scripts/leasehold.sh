# shellcheck shell=sh
# Leasehold for shell scripts: . /path/to/leasehold.sh
#
# For bash 3.2 and later, dash and busybox sh, with or without `set -euo pipefail`. Options, IFS, traps and directory of the
# caller stay as they are; variables are named lh_… (results) and _lh_… (ours). Results are in variables, since a function
# called as $(…) costs a process. LEASEHOLD names the command where it is not in PATH. Examples: docs/adoption.md.
#
#   lh_claim FILE [OPTION]…               takes the lease for this script ($$; also inside a subshell), or for --owner PID,
#                                         with the options of `leasehold claim`; lh_token names the claim
#   lh_release FILE TOKEN [OPTION]…       ends the claim; options of `leasehold release`
#   lh_verify FILE TOKEN [MARGIN]         0 if the claim is current, with MARGIN left of its ttl; lh_epoch
#   lh_guard FILE TOKEN MARGIN -- COMMAND…
#                                         runs COMMAND (a program or a function) only if the claim is current, with MARGIN
#                                         left. Nothing watches it then: MARGIN has to be longer than it takes. Not started:
#                                         the code of lh_verify. Started: 0, or 8 if it failed, with its own code in lh_code
#   lh_state FILE                         judges; lh_verdict, lh_reason, lh_host, lh_pid (`-` for what is not known)
#   lh_pid_state FILE                     the same for a tick: once this shell has seen FILE held by a process of this host,
#                                         it starts no process while record and pid look so. lh_verdict is then
#                                         `probably-held`: the number may be another process by now. That says 0; all other
#                                         codes are leasehold's
#   lh_may_be_in_use FILE                 before deleting or stealing: 0 unless it is verified that nobody uses it (1 dead,
#                                         3 free). What cannot be told, and any failure, is 0
#   lh_may spawn FILE                     0 if nobody holds it (dead or free), so that another may start. Only lh_claim decides
#   lh_may kill FILE                      0 if the recorded process is verified to run on this host. `leasehold stop` ends it
#                                         Both: everything else is a refusal with the code of the reason, 2 for undetermined
#
# Codes are those of leasehold: 0 done or held, 1 dead, 2 undetermined, 3 free, 4 lapsed, 5 held by another, 6 lost, 7 effect
# in doubt, 64 usage, 74 I/O, 75 waited in vain; 8 as above, 69 leasehold cannot be run, 70 it made no sense. 1 is returned
# when leasehold has said `dead`, and never otherwise.

# shellcheck disable=SC2034 # results
lh_token='' lh_epoch='' lh_code='' lh_verdict='' lh_reason='' lh_host='' lh_pid=''
_lh_tab='	'
# Files, each between bars, that leasehold has seen held by a process of this host, and what it writes for this host. A shell
# does not leave its boot or its pid namespace, so that both hold for its life; a script in another one sources this itself.
_lh_known='|' _lh_here='' _lh_namespaces='' _lh_host=''

_lh_usage() {
    printf 'leasehold.sh: usage: %s\n' "$1" >&2
    return 64
}

# Runs leasehold; its output is in _lh_out, its code in _lh_code and returned.
_lh_run() {
    _lh_code=0
    _lh_out=$("${LEASEHOLD:-leasehold}" "$@") || _lh_code=$?
    case "$_lh_code $1 $_lh_out" in
        "1 judge dead$_lh_tab"*) ;;
        '1 '*) _lh_nonsense "$1" || : ;;
        '126 '* | '127 '*)
            printf 'leasehold.sh: cannot run %s: PATH or LEASEHOLD has to say where the command leasehold is\n' \
                "${LEASEHOLD:-leasehold}" >&2
            _lh_code=69
            ;;
    esac
    return "$_lh_code"
}

# Code and output do not go together: it is not the command that we know, or it could not be started.
_lh_nonsense() {
    printf 'leasehold.sh: %s %s ended with %s, and without the answer that goes with it\n' \
        "${LEASEHOLD:-leasehold}" "$1" "$_lh_code" >&2
    _lh_code=70
    return 70
}

lh_claim() {
    lh_token=''
    [ "$#" -ge 1 ] || { _lh_usage 'lh_claim FILE [OPTION]…'; return 64; }
    _lh_file=$1
    shift
    _lh_owner=$$
    for _lh_word in ${1+"$@"}; do
        case $_lh_word in
            --owner | --owner=*) _lh_owner='' ;;
            --json) _lh_usage 'lh_claim FILE [OPTION]…, without --json'; return 64 ;;
        esac
    done
    _lh_run claim ${_lh_owner:+"--owner=$_lh_owner"} ${1+"$@"} -- "$_lh_file" || return "$_lh_code"
    case $_lh_out in
        '' | *[!0-9a-f]*) _lh_nonsense claim || return 70 ;;
    esac
    lh_token=$_lh_out
}

lh_release() {
    [ "$#" -ge 2 ] || { _lh_usage 'lh_release FILE TOKEN [OPTION]…'; return 64; }
    _lh_file=$1 _lh_token=$2
    shift 2
    _lh_run release "--token=$_lh_token" ${1+"$@"} -- "$_lh_file" || return "$_lh_code"
}

lh_verify() {
    lh_epoch=''
    [ "$#" -eq 2 ] || [ "$#" -eq 3 ] || { _lh_usage 'lh_verify FILE TOKEN [MARGIN]'; return 64; }
    _lh_run verify "--token=$2" ${3+"--margin=$3"} -- "$1" || return "$_lh_code"
    case $_lh_out in
        '' | *[!0-9]*) _lh_nonsense verify || return 70 ;;
    esac
    # shellcheck disable=SC2034 # a result
    lh_epoch=$_lh_out
}

lh_guard() {
    lh_code=''
    { [ "$#" -ge 5 ] && [ "$4" = -- ]; } || { _lh_usage 'lh_guard FILE TOKEN MARGIN -- COMMAND [ARGUMENT]…'; return 64; }
    lh_verify "$1" "$2" "$3" || return "$_lh_code"
    shift 4
    if "$@"; then
        lh_code=0
    else
        lh_code=$?
        return 8
    fi
}

lh_state() {
    lh_verdict='' lh_reason='' lh_host='' lh_pid=''
    [ "$#" -eq 1 ] || { _lh_usage 'lh_state FILE'; _lh_code=64; return 64; }
    _lh_run judge -- "$1" || :
    _lh_rest=$_lh_out$_lh_tab
    case "$_lh_code ${_lh_rest%%"$_lh_tab"*}" in
        '0 held' | '1 dead' | '2 undetermined' | '3 free' | '4 lapsed') ;;
        [0234]' '*) _lh_nonsense judge || return 70 ;;
        *) return "$_lh_code" ;;
    esac
    lh_verdict=${_lh_rest%%"$_lh_tab"*} _lh_rest=${_lh_rest#*"$_lh_tab"}
    lh_reason=${_lh_rest%%"$_lh_tab"*} _lh_rest=${_lh_rest#*"$_lh_tab"}
    lh_host=${_lh_rest%%"$_lh_tab"*} _lh_rest=${_lh_rest#*"$_lh_tab"}
    # shellcheck disable=SC2034 # results
    lh_pid=${_lh_rest%%"$_lh_tab"*}
    return "$_lh_code"
}

lh_pid_state() {
    if [ "$#" -eq 1 ] && _lh_probably_held "$1"; then
        lh_verdict=probably-held lh_reason=pid-exists
        return 0
    fi
    lh_state ${1+"$@"} || return "$_lh_code"
    [ "$lh_reason" = process-running ] || return 0
    case $_lh_known in *"|$1|"*) return 0 ;; esac
    if [ -z "$_lh_here" ]; then
        # {"host":…,"boot":…,"pidns":…,"timens":…,"uptime":…}, as in a record, which has pid and start after boot.
        _lh_run id --json || return 0
        _lh_here=${_lh_out%%',"pidns":'*} _lh_namespaces=${_lh_out#*',"pidns":'}
        _lh_here=,${_lh_here#'{'}',"pid":' _lh_namespaces=',"pidns":'${_lh_namespaces%%',"uptime":'*},
        _lh_host=$lh_host
    fi
    _lh_known="$_lh_known$1|"
}

# By builtins alone. Only for a file that has been seen to be a record: `read` has no bound that every shell knows, and a large
# file without a newline would keep it.
_lh_probably_held() {
    case $_lh_known in *"|$1|"*) ;; *) return 2 ;; esac
    # A FIFO would keep it for ever, and a link is no record.
    [ -f "$1" ] && [ ! -h "$1" ] || return 2
    IFS= read -r _lh_line 2>/dev/null <"$1" || return 2
    case $_lh_line in
        *',"ended":'*) return 2 ;;
        '{"leasehold":1,'*"$_lh_here"*"$_lh_namespaces"*'}') ;;
        *) return 2 ;;
    esac
    lh_host=$_lh_host lh_pid=${_lh_line#*"$_lh_here"}
    lh_pid=${lh_pid%%,*}
    case $lh_pid in '' | *[!0-9]* | 0*) return 2 ;; esac
    case $_lh_line in *',"binds":"'*) _lh_bound_names "$1" "$lh_pid" || return 2 ;; esac
    kill -0 "$lh_pid" 2>/dev/null || return 2
}

# Whether the pid file to which the record FILE in _lh_line is bound names this pid.
_lh_bound_names() {
    _lh_bound=${_lh_line#*',"binds":"'} _lh_bound=${_lh_bound%%'"'*}
    case $_lh_bound in
        *\\*) return 2 ;;
        /*) ;;
        *) case $1 in */*) _lh_bound=${1%/*}/$_lh_bound ;; esac ;;
    esac
    [ -f "$_lh_bound" ] && [ ! -h "$_lh_bound" ] || return 2
    _lh_named=''
    # Without a newline at its end `read` fails, and has read it.
    IFS=" $_lh_tab" read -r _lh_named _lh_rest 2>/dev/null <"$_lh_bound" || :
    [ "$_lh_named" = "$2" ] || return 2
}

lh_may_be_in_use() {
    lh_state ${1+"$@"} || :
    case $_lh_code in 1 | 3) return "$_lh_code" ;; esac
    return 0
}

lh_may() {
    case "$#${1+ $1}" in '2 spawn' | '2 kill') ;; *) _lh_usage 'lh_may spawn|kill FILE'; return 64 ;; esac
    lh_state "$2" || :
    case "$1 $_lh_code $lh_reason" in
        'spawn 1 '* | 'spawn 3 '* | 'kill 0 process-running') return 0 ;;
        'spawn 0 '* | 'kill 0 '*) return 5 ;;
    esac
    return "$_lh_code"
}
