//! What a script that sources the functions must not notice.

use crate::shells::everywhere;

/// Every function, on files of every kind.
const USE: &str = r#"
use() {
    lh_claim x.lease; lh_verify x.lease "$lh_token"; lh_guard x.lease "$lh_token" 1s -- true
    lh_release x.lease "$lh_token"
    for f in held.lease bound.lease dead.lease foreign.lease free.lease bare.pid torn.lease; do
        lh_state $f || :; lh_pid_state $f || :; lh_pid_state $f || :
        lh_may_be_in_use $f || :; lh_may spawn $f || :; lh_may kill $f || :
    done
}
"#;

#[test]
fn nothing_of_the_caller_changes() {
    everywhere(
        &format!(
            r#"{USE}
            dump() {{
                set +o; printf '%s|' "$IFS"; pwd; umask; trap
                # Ours, and what a shell sets by itself.
                set | grep -v -e ^_*lh_ -e ^_= -e ^BASH_ -e ^FUNCNAME -e ^PIPESTATUS= -e ^LINENO= -e ^PPID=
            }}
            f=1 code=2 file=3 rest=4
            trap 'echo bye' EXIT
            trap : USR1
            umask 027
            set -C
            cd / && cd - >/dev/null
            IFS=': x'
            dump >before; . "$FUNCTIONS"; f=; use; f=1; dump >after
            diff before after && echo same"#
        ),
        "same\nbye\n",
        0,
    );
}

#[test]
fn any_separators_will_do() {
    // No quote is left out: what is split is a word of the functions, or of this script.
    everywhere(
        &format!(
            r#"{USE}
            ask() {{
                IFS="$1"
                use
                lh_claim y.lease --ttl 60s --owner "$OWNER"; mine="$lh_token"
                lh_pid_state y.lease; lh_pid_state y.lease
                [ "$lh_verdict" = probably-held ]; code lh_verify y.lease "$mine" 70s; [ "$code" = 6 ]
                code lh_state dead.lease; [ "$code" = 1 ]; lh_release y.lease "$mine"; echo same
            }}
            ask ''; ask 0123456789; ask 'abcdefghijklmnopqrstuvwxyz-=. '; ask '/":,'; ask '}}'"#
        ),
        &"same\n".repeat(5),
        0,
    );
}

/// bash runs an ERR trap also in functions, if told to.
#[test]
fn what_succeeds_sets_no_error_trap_off() {
    everywhere(
        "case ${BASH_VERSION-} in ?*) set -E; trap 'echo ERR' ERR ;; esac\n\
         lh_claim x.lease; lh_verify x.lease $lh_token; lh_guard x.lease $lh_token 1s -- true\n\
         lh_pid_state x.lease; lh_pid_state x.lease; lh_pid_state bound.lease; lh_pid_state bound.lease\n\
         lh_may kill held.lease; lh_may spawn dead.lease; lh_may_be_in_use torn.lease; lh_release x.lease $lh_token",
        "",
        0,
    );
}

#[test]
fn readonly_names_and_options_of_the_caller_do_no_harm() {
    everywhere(
        &format!("readonly file=1 rest=2 line=3 pid=4 out=5 token=6\n{USE}\nset -f; set -a; use; echo done"),
        "done\n",
        0,
    );
}

/// Under `set -e` a function that says no ends the script, with its code.
#[test]
fn a_script_that_ends_at_failures_ends_with_the_code() {
    for (call, code) in [
        ("lh_state dead.lease", 1),
        ("lh_pid_state dead.lease", 1),
        ("lh_state foreign.lease", 2),
        ("lh_may kill foreign.lease", 2),
        ("lh_may spawn held.lease", 5),
        ("lh_may_be_in_use free.lease", 3),
        ("lh_claim foreign.lease", 2),
        ("lh_verify held.lease 00000000000000000000000000000000", 6),
        ("lh_release held.lease 00000000000000000000000000000000", 6),
        ("lh_claim x.lease; lh_guard x.lease $lh_token 1s -- false", 8),
    ] {
        everywhere(&format!("set -e; {call}; echo reached"), "", code);
    }
}
