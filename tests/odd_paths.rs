//! Paths and filesystems that are not what they should be: a clear result at once, and nothing changed.
#![cfg(target_os = "linux")]

mod support;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use support::call::{Done, Run, Site, Unprivileged, forge};
use support::{Running, chmod, is_root, names, skip, snapshot};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A claim that outlasts a rival waits 0.5 s for it; beyond this, with a machine that is busy elsewhere, it hangs.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Every verb on one path, and its code.
struct Codes {
    judge: i32,
    show: i32,
    claim: i32,
    /// verify, renew, release, note, hand-over
    holder: i32,
}

/// What is no record, wherever it is from.
const NO_RECORD: Codes = Codes {
    judge: 2,
    show: 2,
    claim: 2,
    holder: 2,
};

/// What cannot be read: nothing is known about it.
const UNREADABLE: Codes = Codes {
    judge: 2,
    show: 74,
    claim: 74,
    holder: 74,
};

const ABSENT: Codes = Codes {
    judge: 3,
    show: 3,
    claim: 64,
    holder: 6,
};

impl Codes {
    fn of(&self) -> [(&'static str, Vec<&'static str>, i32); 8] {
        let holder = |verb, more: &[&'static str]| (verb, [&["--token", TOKEN], more].concat(), self.holder);
        [
            ("judge", vec![], self.judge),
            ("show", vec![], self.show),
            ("claim", vec!["--owner", "1"], self.claim),
            holder("verify", &[]),
            holder("renew", &[]),
            holder("release", &[]),
            holder("note", &["a=b"]),
            holder("hand-over", &["--to", "1"]),
        ]
    }

    /// Runs every verb on the path: its code, a message, soon, and nothing changed in the directory.
    #[track_caller]
    fn hold(&self, dir: &Path, path: &Path, why: &str) {
        self.hold_by(Run::new, dir, path, why);
    }

    #[track_caller]
    fn hold_by(&self, run: impl Fn(&str) -> Run, dir: &Path, path: &Path, why: &str) {
        let before = snapshot(dir);
        for (verb, words, code) in self.of() {
            let done = run(verb).dir(dir).arg(path).args(words).done();
            done.expect_code(code);
            at_once(&done);
            if verb != "judge" {
                done.prints_nothing().says(&[why]);
            }
            assert!(
                done.stderr.is_empty() == (verb == "judge") && done.stderr.lines().count() <= 3,
                "{}: {}",
                done.what,
                done.stderr
            );
            assert_eq!(snapshot(dir), before, "{verb} of {}", path.display());
        }
        let wait = run("claim")
            .dir(dir)
            .args(["--owner", "1", "--wait", "20ms", "--"])
            .arg(path)
            .done();
        assert!(
            [self.claim, 75].contains(&wait.status.code().expect("no signal")),
            "{}",
            wait.stderr
        );
        assert_eq!(snapshot(dir), before);
    }
}

#[track_caller]
fn at_once(done: &Done) {
    assert!(done.took < AT_ONCE, "{} took {:?}", done.what, done.took);
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_symlink_is_not_followed() {
    let site = Site::new();
    site.claimed();
    let dir = site.dir.path();
    let link = dir.join("link");
    for target in ["x.lease", "nowhere", "link", ".", "/dev/zero"] {
        symlink(target, &link).expect("symlink");
        NO_RECORD.hold(dir, &link, "symbolic link");
        std::fs::remove_file(&link).expect("remove");
    }
}

#[test]
fn a_directory_on_the_way_may_be_a_symlink() {
    let site = Site::new();
    let other = dir();
    let link = other.path().join("run");
    symlink(site.dir.path(), &link).expect("symlink");
    let path = link.join("x.lease");
    Run::new("claim").arg(&path).args(["--owner", &site.owner.id()]).ok();
    site.is(0, "held", "process-running");
}

#[test]
fn a_directory_is_no_record() {
    let dir = dir();
    let path = dir.path().join("d");
    std::fs::create_dir(&path).expect("mkdir");
    NO_RECORD.hold(dir.path(), &path, "a directory");
}

#[test]
fn a_fifo_is_not_waited_for() {
    let dir = dir();
    let path = dir.path().join("fifo");
    mkfifo(&path);
    NO_RECORD.hold(dir.path(), &path, "a FIFO, socket or device");
}

#[test]
fn a_socket_is_no_record() {
    let dir = dir();
    let path = dir.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    NO_RECORD.hold(dir.path(), &path, "a FIFO, socket or device");
}

#[test]
fn a_device_is_not_read() {
    let dir = dir();
    for device in ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"] {
        NO_RECORD.hold(dir.path(), Path::new(device), "a FIFO, socket or device");
    }
}

#[test]
fn what_cannot_be_read_is_unreadable() {
    let user = Unprivileged::new();
    let path = user.dir.path().join("x.lease");
    Run::new("claim").arg(&path).args(["--owner", "1"]).ok();
    chmod(&path, 0);
    UNREADABLE.hold_by(|verb| user.run(verb), user.dir.path(), &path, "Permission denied");
    chmod(&path, 0o600);

    let closed = user.dir.path().join("closed");
    std::fs::create_dir(&closed).expect("mkdir");
    std::fs::rename(&path, closed.join("x.lease")).expect("rename");
    chmod(&closed, 0);
    UNREADABLE.hold_by(
        |verb| user.run(verb),
        user.dir.path(),
        &closed.join("x.lease"),
        "Permission denied",
    );
    chmod(&closed, 0o700);
}

#[test]
fn what_cannot_be_written_is_said() {
    let user = Unprivileged::new();
    let path = user.dir.path().join("x.lease");
    Run::new("claim").arg(&path).args(["--owner", "1"]).ok();
    chmod(user.dir.path(), 0o755);
    if !is_root() {
        chmod(user.dir.path(), 0o555);
    }
    let before = snapshot(user.dir.path());
    let token = Run::new("show").arg(&path).args(["--field", "token"]).ok();
    let token = token.trim_end();
    for (verb, words) in [
        ("renew", vec!["--token", token]),
        ("release", vec!["--token", token]),
        ("note", vec!["--token", token, "a=b"]),
    ] {
        let failed = user.run(verb).arg(&path).args(words).exits(74);
        failed.says(&["cannot create the temp file", "Permission denied"]);
    }
    let free = user.dir.path().join("free.lease");
    user.run("claim")
        .arg(&free)
        .args(["--owner", "1"])
        .exits(74)
        .says(&["Permission denied"]);
    assert_eq!(snapshot(user.dir.path()), before);
    chmod(user.dir.path(), 0o777);
}

#[test]
fn a_missing_directory_is_named() {
    let dir = dir();
    UNREADABLE.hold(
        dir.path(),
        &dir.path().join("no").join("x.lease"),
        "its directory: No such file",
    );
    std::fs::write(dir.path().join("file"), "").expect("write");
    UNREADABLE.hold(dir.path(), &dir.path().join("file").join("x.lease"), "Not a directory");
    // A run directory on a filesystem that is not mounted: nobody knows who holds what in there.
    symlink("elsewhere", dir.path().join("run")).expect("symlink");
    UNREADABLE.hold(
        dir.path(),
        &dir.path().join("run").join("x.lease"),
        "its directory: No such file",
    );
}

#[test]
fn a_directory_that_was_removed_under_one_is_named() {
    let dir = dir();
    let script = r#"mkdir "$0/gone" && cd "$0/gone" && rmdir "$0/gone" && exec "$LEASEHOLD" judge x.lease"#;
    let done = Run::program("sh").args(["-c", script]).arg(dir.path()).exits(2);
    assert!(done.stdout.starts_with("undetermined\tunreadable"), "{}", done.stdout);
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let dir = dir();
    let path = dir.path().join("large");
    let file = std::fs::File::create(&path).expect("create");
    for size in [64 * 1024 + 1, 1 << 30] {
        file.set_len(size).expect("a sparse file");
        NO_RECORD.hold(dir.path(), &path, &format!("{size} bytes"));
    }
}

#[test]
fn zeros_are_a_torn_record() {
    let dir = dir();
    let path = dir.path().join("zeros");
    for size in [1, 4096, 64 * 1024] {
        std::fs::write(&path, vec![0; size]).expect("write");
        NO_RECORD.hold(dir.path(), &path, "cut short");
    }
}

#[test]
fn other_formats_are_no_records() {
    let dir = dir();
    let path = dir.path().join("x");
    // Pieces of everything, and noise that is the same in each run.
    let mut noise = 0x2545_f491_4f6c_dd1d_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        noise as u8
    })
    .take(5000)
    .collect();
    for (content, why) in [
        (&b"\x7fELF\x02\x01\x01"[..], "not a record"),
        (b"#!/bin/sh\n", "not a record"),
        (b"[]\n", "not a record"),
        (b"null\n", "not a record"),
        (b"{}\n", "not a record"),
        (b"{}\n{}\n{}\n", "not a record"),
        (b"{\"leasehold\":\"1\"}\n", "not a record"),
        (b"{\"leasehold\":0}\n{}\n{}\n", "not a record"),
        (b"{\"leasehold\":2,\"new\":true}\n", "format 2"),
        (b"{\"pid\":1}\n", "not a record"),
        (b"pid: 12\n", "not a record"),
        (b"0\n", "not a record"),
        (b"-1\n", "not a record"),
        (b"12 34\n", "not a record"),
        (b"\xff\xfe1\x002\x00", "cut short"),
        (b"\xef\xbb\xbf12\n", "not a record"),
        (b"\n", "not a record"),
        (&noise, ""),
    ] {
        std::fs::write(&path, content).expect("write");
        NO_RECORD.hold(dir.path(), &path, why);
    }
}

#[test]
fn a_record_is_whole_or_torn_wherever_it_is_cut() {
    let site = Site::new();
    let token = site.claimed();
    let whole = std::fs::read(&site.path).expect("read");
    let paths: Vec<PathBuf> = (0..whole.len())
        .map(|length| {
            let path = site.dir.path().join(format!("{length:04}.cut"));
            std::fs::write(&path, &whole[..length]).expect("write");
            path
        })
        .collect();
    let before = snapshot(site.dir.path());
    let out = Run::new("judge").args(&paths).ok();
    let reasons: Vec<&str> = out
        .lines()
        .map(|line| line.split('\t').nth(1).expect("a field"))
        .collect();
    assert_eq!(reasons.len(), whole.len());
    assert_eq!(reasons[0], "empty");
    assert!(reasons[1..].iter().all(|reason| *reason == "torn"), "{reasons:?}");
    // No cut is free for a claim, or the holder's, at the ends of lines least of all.
    let newlines = whole
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'\n')
        .map(|(at, _)| at);
    for at in newlines
        .flat_map(|at| [at, at + 1])
        .filter(|at| *at < whole.len())
        .chain([0, 1])
    {
        let run = |verb: &str| Run::new(verb).arg(&paths[at]);
        run("claim").args(["--owner", "1"]).exits(2);
        run("verify").args(["--token", &token]).exits(2);
        run("renew").args(["--token", &token]).exits(2);
    }
    assert_eq!(snapshot(site.dir.path()), before);
}

#[test]
fn a_pid_that_is_none_never_reaches_a_system_call() {
    let site = Site::new();
    for pid in [
        serde_json::json!(0),
        (-1).into(),
        (1u64 << 31).into(),
        (1.5).into(),
        "1".into(),
        true.into(),
        serde_json::Value::Null,
    ] {
        let _ = std::fs::remove_file(&site.path);
        site.claimed();
        site.forge(&[("pid", pid.clone())]);
        site.is(2, "undetermined", "malformed");
        NO_RECORD.hold(site.dir.path(), &site.path, "not a record");
    }
}

#[test]
fn a_path_that_names_a_directory_is_refused() {
    let dir = dir();
    std::fs::create_dir(dir.path().join("d")).expect("mkdir");
    std::fs::write(dir.path().join("file"), "").expect("write");
    symlink("d", dir.path().join("link")).expect("symlink");
    let before = snapshot(dir.path());
    for path in [
        ".", "..", "/", "./", "d/", "d/.", "d/..", "new/", "new/.", "file/", "file/.", "link/", "link/.",
    ] {
        for (verb, words, _) in NO_RECORD.of() {
            let done = Run::new(verb).dir(dir.path()).arg(path).args(words).done();
            at_once(&done);
            let code = if ["judge", "show"].contains(&verb) { 2 } else { 64 };
            done.expect_code(code);
            assert_eq!(snapshot(dir.path()), before, "{verb} {path}");
        }
    }
    for (verb, words, _) in NO_RECORD.of() {
        Run::new(verb)
            .dir(dir.path())
            .arg("")
            .args(words)
            .exits(64)
            .prints_nothing();
    }
    assert_eq!(snapshot(dir.path()), before);
}

#[test]
fn a_name_may_have_219_bytes() {
    let dir = dir();
    let owner = Running::idle();
    let path = dir.path().join("n".repeat(219));
    let run = |verb: &str| Run::new(verb).arg(&path);
    let token = run("claim").args(["--owner", &owner.id()]).ok();
    let token = ["--token", token.trim_end()];
    run("note").args(token).arg("a=b").ok();
    run("release").args(token).ok();
    assert_eq!(names(dir.path()), [OsString::from("n".repeat(219))]);

    for length in [220, 255] {
        let path = dir.path().join("m".repeat(length));
        ABSENT.hold(dir.path(), &path, "");
        let refused = Run::new("claim").arg(&path).args(["--owner", "1"]).exits(64);
        refused.says(&[&format!("the name has {length} bytes; a lease's has at most 219")]);
    }
    let longer = Codes {
        claim: 64,
        ..UNREADABLE
    };
    longer.hold(dir.path(), &dir.path().join("m".repeat(256)), "");
}

#[test]
fn a_name_may_hold_anything() {
    for name in [
        &b"two\nlines"[..],
        b"\xff\xfe",
        b"-x.lease",
        b"--help",
        b" ",
        b"a b'\"$(c)",
        b"\\",
        b"=",
        b"...",
        b".x.lease.t-0123",
        "\u{202e}\u{1f512}".as_bytes(),
    ] {
        let dir = dir();
        let owner = Running::idle();
        let name = OsStr::from_bytes(name);
        let run = |verb: &str, words: &[&str]| Run::new(verb).dir(dir.path()).args(words).arg("--").arg(name);
        let token = run("claim", &["--owner", &owner.id()]).ok();
        let token = token.trim_end();
        assert!(
            run("judge", &[]).ok().starts_with("held\tprocess-running\t"),
            "{name:?}"
        );
        assert_eq!(run("show", &["--field", "epoch"]).ok(), "1\n");
        run("renew", &["--token", token]).ok();
        run("note", &["--token", token]).arg("a=b").ok();
        assert_eq!(run("verify", &["--token", token]).ok(), "1\n");
        run("release", &["--token", token]).ok();
        assert_eq!(names(dir.path()), [name], "nothing else is left");
    }
}

mod signals {
    use super::*;

    #[test]
    fn end_a_waiting_claim_at_once_and_leave_nothing() {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            let site = Site::new();
            site.claimed();
            let before = snapshot(site.dir.path());
            let mut waiting = site.claim().args(["--wait", "1h"]).start();
            waiting.says("waiting for");
            waiting.child.signal(signal);
            let done = waiting.end();
            assert_eq!(done.signal(), Some(signal as i32));
            at_once(&done);
            done.prints_nothing();
            assert_eq!(snapshot(site.dir.path()), before);
        }
    }
}

mod planted {
    use super::*;

    /// A temp name of a rival that no host knows.
    const RIVAL: &str = ".x.lease.t-00000000000000010000000100000001";

    /// A claim has to come through, and to touch nothing but what belongs to its record.
    fn comes_through(plant: impl Fn(&Path)) -> Site {
        let site = Site::new();
        let outside = dir();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "untouched").expect("write");
        // Those of another lease whose name begins with ours.
        for name in [
            ".x.lease.lease.ballot-1",
            ".x.lease.lease.t-00000000000000010000000100000001",
            "x.lease.lease",
        ] {
            std::fs::write(site.dir.path().join(name), "another's").expect("write");
        }
        let others = names(site.dir.path());
        plant(site.dir.path());
        let before = snapshot(outside.path());
        let done = site.claim().arg("--json").done();
        at_once(&done);
        assert_eq!(done.expect_code(0).json()["epoch"], 1);
        assert_eq!(done.stderr, "");
        site.is(0, "held", "process-running");
        assert_eq!(snapshot(outside.path()), before);
        for name in others {
            let content = std::fs::read_to_string(site.dir.path().join(name)).expect("it is still there");
            assert_eq!(content, "another's");
        }
        // And it can go on from there.
        let token = site.field("token");
        site.holder("renew", &token).ok();
        site.holder("release", &token).ok();
        assert_eq!(site.claim().arg("--json").json()["epoch"], 2);
        site
    }

    fn mine(site: &Site) -> Vec<OsString> {
        let mut mine = site.names();
        mine.retain(|name| !name.as_encoded_bytes().starts_with(b".x.lease.lease.") && name != "x.lease.lease");
        mine
    }

    #[test]
    fn ballots_of_nobody_are_passed_over_and_removed() {
        let ballot = ".x.lease.ballot-1";
        let outside = dir();
        let secret = outside.path().join("secret");
        std::fs::write(&secret, "untouched").expect("write");
        let targets = [
            OsString::from("nothing"),
            "../../../etc/passwd".into(),
            secret.clone().into(),
            ".".into(),
            ballot.into(),
            RIVAL.into(),
            ".x.lease.lease.t-00000000000000010000000100000001".into(),
            OsString::from_vec(b"\xff".to_vec()),
            "/dev/zero".into(),
        ];
        for target in targets {
            let site = comes_through(|dir| symlink(&target, dir.join(ballot)).expect("symlink"));
            assert_eq!(mine(&site), ["x.lease"], "{target:?}");
        }
        for content in ["", "garbage", RIVAL, "../secret"] {
            let site = comes_through(|dir| std::fs::write(dir.join(ballot), content).expect("write"));
            assert_eq!(mine(&site), ["x.lease"], "{content:?}");
        }
        assert_eq!(std::fs::read_to_string(&secret).expect("read"), "untouched");
    }

    #[test]
    fn a_ballot_that_is_a_directory_or_fifo_stops_nobody() {
        let ballot = ".x.lease.ballot-1";
        let site = comes_through(|dir| std::fs::create_dir(dir.join(ballot)).expect("mkdir"));
        assert_eq!(mine(&site), [ballot, "x.lease"], "a directory is not removed");
        let site = comes_through(|dir| mkfifo(&dir.join(ballot)));
        assert_eq!(mine(&site), ["x.lease"]);
    }

    #[test]
    fn several_ballots_of_nobody_cost_their_patience_each() {
        let site = comes_through(|dir| {
            for number in 1..=3 {
                symlink("nothing", dir.join(format!(".x.lease.ballot-{number}"))).expect("symlink");
            }
        });
        assert_eq!(mine(&site), ["x.lease"]);
    }

    #[test]
    fn a_rival_that_commits_is_given_way_to_when_asked() {
        let site = Site::new();
        let token = site.claimed();
        site.holder("release", &token).ok();
        let dir = site.dir.path();
        let next = std::fs::read(&site.path).expect("read");
        forge(&site.path, &[("seq", 2.into())]);
        std::fs::write(dir.join(RIVAL), next).expect("write");
        forge(&dir.join(RIVAL), &[("seq", 3.into())]);
        symlink(RIVAL, dir.join(".x.lease.ballot-3")).expect("symlink");
        let mut claim = site.claim().arg("--give-way").start();
        // Its own temp file is there, and it sleeps: it waits for the rival.
        while site.names().len() < 4 || claim.child.process.state() != Some('S') {
            assert!(claim.child.runs(), "it has not waited");
        }
        std::fs::rename(dir.join(RIVAL), &site.path).expect("rename");
        let done = claim.end();
        done.expect_code(5).prints_nothing();
        done.says(&["another claim on", "is under way"]);
    }

    /// It may have crashed on another host: then nobody would ever get past it.
    #[test]
    fn a_rival_that_does_nothing_is_outlasted_also_by_who_gives_way() {
        let site = Site::new();
        let dir = site.dir.path();
        std::fs::write(dir.join(RIVAL), "its record").expect("write");
        symlink(RIVAL, dir.join(".x.lease.ballot-1")).expect("symlink");
        let token = site.claim().arg("--give-way").ok();
        let disarmed = RIVAL.replace(".t-", ".v-");
        assert_eq!(
            site.names(),
            [".x.lease.ballot-2", &disarmed, "x.lease"],
            "a rival that was passed over cannot commit any more, and the record has a second name for as long as it may try"
        );
        site.holder("release", token.trim()).ok();
        let file = std::fs::File::options()
            .write(true)
            .open(dir.join(disarmed))
            .expect("open");
        let old = std::time::SystemTime::now() - Duration::from_secs(2 * 3600);
        file.set_modified(old).expect("utimens");
        for _ in 0..2 {
            site.holder("release", &site.claimed()).ok();
        }
        assert_eq!(site.names(), ["x.lease"]);
    }

    #[test]
    fn a_temp_file_of_an_unknown_host_is_left_until_it_is_old() {
        let site = Site::new();
        let temp = site.dir.path().join(RIVAL);
        std::fs::write(&temp, "its record").expect("write");
        let token = site.claimed();
        assert!(temp.exists(), "its writer may be at work on another host");
        site.holder("release", &token).ok();
        let file = std::fs::File::options().write(true).open(&temp).expect("open");
        let old = std::time::SystemTime::now() - Duration::from_secs(2 * 3600);
        file.set_modified(old).expect("utimens");
        site.claimed();
        assert_eq!(site.names(), ["x.lease"]);
    }

    #[test]
    fn a_record_that_is_a_hard_link_elsewhere_is_replaced_and_not_written_into() {
        let site = Site::new();
        let token = site.claimed();
        let twin = site.dir.path().join("twin");
        std::fs::hard_link(&site.path, &twin).expect("link");
        let before = std::fs::read(&twin).expect("read");
        site.holder("renew", &token).ok();
        assert_eq!(std::fs::read(&twin).expect("read"), before);
        assert_eq!(site.field("seq"), "2");
    }
}

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .expect("mkfifo");
}

/// Filesystems that only root can make, or anybody in a user namespace.
mod mounts {
    use super::*;

    /// Runs a shell script with its own mounts. In it `$D` is an empty directory to mount on, `$L` the command, and
    /// `want CODE TEXT COMMAND…` checks a command's code and that its stderr holds a text. Skipped where that is not allowed.
    fn with_mounts(script: &str) {
        let namespaces: &[&str] = if is_root() { &["-m"] } else { &["-rm"] };
        let may = Run::program("unshare")
            .args(namespaces)
            .args(["mount", "-t", "tmpfs", "t", "/mnt"])
            .done();
        if !may.status.success() {
            return skip(&format!("no mount namespace for this user: {}", may.stderr.trim()));
        }
        const PRELUDE: &str = r#"
            set -eu
            want() {
                code=$1 text=$2
                shift 2
                got=0
                err=$("$@" 2>&1 >/dev/null) || got=$?
                case $err in *"$text"*) ;; *) echo "no '$text' in: $err"; exit 99 ;; esac
                [ "$got" = "$code" ] || { echo "$* ended with $got, not $code: $err"; exit 99; }
            }
            # What would show that something changed.
            state() { ls -lAi --time-style=full-iso "$D"; [ ! -e "$D/x" ] || cat "$D/x"; }
            same() { [ "$(state)" = "$before" ] || { echo "changed: $before"; echo "now: $(state)"; exit 99; }; }
        "#;
        let dir = dir();
        let done = Run::program("unshare")
            .args(namespaces)
            .args(["sh", "-c", &format!("{PRELUDE}{script}")])
            .env("D", dir.path())
            .env("L", support::LEASEHOLD)
            .done();
        assert!(done.status.success(), "{}\n{}{}", done.status, done.stdout, done.stderr);
    }

    #[test]
    fn a_read_only_mount_is_read_and_its_changes_fail_with_74() {
        with_mounts(
            r#"
            mount -t tmpfs t "$D"
            token=$("$L" claim "$D/x" --owner $$)
            mount -o remount,bind,ro "$D"
            before=$(state)
            want 0 '' "$L" judge "$D/x"
            want 0 '' "$L" show "$D/x"
            want 0 '' "$L" verify "$D/x" --token "$token"
            want 5 'is held' "$L" claim "$D/x" --owner $$
            for verb in renew release 'note a=b' "hand-over --to $$"; do
                set -- $verb
                verb=$1; shift
                want 74 "Read-only file system" "$L" "$verb" "$D/x" --token "$token" "$@"
                want 74 "cannot create the temp file $D/.x.t-" "$L" "$verb" "$D/x" --token "$token" "$@"
            done
            want 3 '' "$L" judge "$D/y"
            want 74 "Read-only file system" "$L" claim "$D/y" --owner $$
            same
            "#,
        );
    }

    const FULL: &str = r#"
        before=$(state)
        want 0 '' "$L" judge "$D/x"
        want 0 '' "$L" verify "$D/x" --token "$token"
        want 5 'is held' "$L" claim "$D/x" --owner $$
        for verb in renew release 'note a=b' "hand-over --to $$"; do
            set -- $verb
            verb=$1; shift
            want 74 "No space left on device" "$L" "$verb" "$D/x" --token "$token" "$@"
            want 74 "the temp file $D/.x.t-" "$L" "$verb" "$D/x" --token "$token" "$@"
        done
        want 74 "No space left on device" "$L" claim "$D/y" --owner $$
        want 74 "the temp file $D/.y.t-" "$L" claim "$D/y" --owner $$
        [ "$(ls -A "$D")" = "$names" ] || { ls -A "$D"; exit 99; }
        [ "$(cat "$D/x")" = "$record" ]
        rm "$D/fill"*
        "$L" renew "$D/x" --token "$token"
        "$L" release "$D/x" --token "$token"
        [ "$(ls -A "$D")" = x ]
    "#;

    #[test]
    fn a_full_disk_leaves_the_record_and_nothing_else() {
        with_mounts(&format!(
            r#"
            mount -t tmpfs -o size=64k t "$D"
            token=$("$L" claim "$D/x" --owner $$)
            cat /dev/zero >"$D/fill" 2>/dev/null || true
            record=$(cat "$D/x") names=$(ls -A "$D")
            {FULL}"#
        ));
    }

    #[test]
    fn a_disk_without_inodes_leaves_the_record_and_nothing_else() {
        with_mounts(&format!(
            r#"
            mount -t tmpfs -o nr_inodes=16 t "$D"
            token=$("$L" claim "$D/x" --owner $$)
            n=0
            while (: >"$D/fill$n") 2>/dev/null; do n=$((n + 1)); done
            record=$(cat "$D/x") names=$(ls -A "$D")
            {FULL}"#
        ));
    }

    /// Room for the temp file, and none for the ballot: the temp file must go again.
    #[test]
    fn a_disk_with_room_for_half_a_change_is_left_as_it_was() {
        with_mounts(
            r#"
            mount -t tmpfs -o nr_inodes=16 t "$D"
            token=$("$L" claim "$D/x" --owner $$)
            n=0
            while (: >"$D/fill$n") 2>/dev/null; do n=$((n + 1)); done
            rm "$D/fill0"
            record=$(cat "$D/x") names=$(ls -A "$D")
            before=$(state)
            want 74 "No space left on device" "$L" renew "$D/x" --token "$token"
            want 74 "cannot create the ballot $D/.x.ballot-2" "$L" renew "$D/x" --token "$token"
            [ "$(ls -A "$D")" = "$names" ] || { ls -A "$D"; exit 99; }
            [ "$(cat "$D/x")" = "$record" ]
            "#,
        );
    }
}

#[test]
fn forged_records_of_this_host_are_judged_and_not_believed() {
    let site = Site::new();
    site.claimed();
    for (key, value, code, reason) in [
        // The pidfs inode is still the process's own: the clocks differ.
        ("start", serde_json::json!(1), 2, "other-time-namespace"),
        ("pidfd", serde_json::json!(1), 1, "pid-reused"),
        ("start", serde_json::Value::Null, 2, "no-start-time"),
        ("host", serde_json::Value::Null, 2, "no-host"),
        ("host", "".into(), 2, "no-host"),
        ("boot", serde_json::Value::Null, 2, "no-boot"),
        ("pidns", 1.into(), 2, "other-pid-namespace"),
        ("pidns", serde_json::Value::Null, 2, "no-pid-namespace"),
        ("timens", 1.into(), 2, "other-time-namespace"),
        ("ttl", 4.into(), 2, "malformed"),
    ] {
        let copy = site.dir.path().join("copy");
        std::fs::copy(&site.path, &copy).expect("copy");
        forge(&copy, &[(key, value.clone())]);
        let done = Run::new("judge").arg(&copy).exits(code);
        assert_eq!(done.stdout.split('\t').nth(1), Some(reason), "{key}: {value}");
    }
}

/// What is emptied is no absent record, whichever names it has.
#[test]
fn an_emptied_record_with_a_ballot_is_not_absent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.lease");
    leasehold::Lease::claim(&path).unwrap().leave();
    std::fs::hard_link(&path, dir.path().join(".x.lease.ballot-1")).unwrap();
    std::fs::File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(leasehold::judge(&path).reason, leasehold::Reason::Empty);
    let refused = leasehold::Lease::claim(&path);
    assert!(matches!(refused, Err(leasehold::Error::Refused(_))), "{refused:?}");
}
