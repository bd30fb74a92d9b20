//! From one host alone.

use std::fs;
use std::path::Path;

use super::Said;
use super::support::host::{Host, Process, initial, other_users, possible};
use super::support::{LEASEHOLD, chmod, clean, directory, names};

fn doctor(dir: &Path) -> Said {
    let mut command = clean(LEASEHOLD);
    command.arg("doctor").arg(dir).arg("--json");
    Said::from(super::support::Answer::from(command.output().unwrap()))
}

/// On a host whose identity is strong, so that only the directory is left to be found fault with.
fn on(host: &Host, dir: &str) -> Said {
    host.leasehold(&format!("doctor {dir} --json")).into()
}

/// A host, where one can be made, and where its name and machine id count.
fn host() -> Option<Host> {
    (possible() && initial()).then(|| Host::named("login-a").start())
}

#[test]
fn nothing_is_in_the_way_and_nothing_is_left() {
    let Some(host) = host() else { return };
    let (dir, _) = directory();
    let path = dir.path().to_str().unwrap();
    let said = on(&host, path);
    assert_eq!((said.code, said.bad()), (0, vec![]), "{}", said.json);
    assert!(said.of("tried").contains("atomic rename"), "{}", said.json);
    assert!(said.of("identity").starts_with("ok: login-a"), "{}", said.json);
    assert_eq!(said.of("records"), "ok: no records");
    assert_eq!(names(dir.path()), [""; 0]);
    for finding in said.json["findings"].as_array().unwrap() {
        for key in ["level", "area", "id", "what", "why"] {
            assert!(finding[key].as_str().is_some_and(|word| !word.is_empty()), "{finding}");
        }
    }
    // The same for people: what is well takes a line, and names no remedy.
    let text = host.leasehold(&format!("doctor {path}")).ok();
    assert!(text.starts_with(&format!("{path}: nothing in the way")), "{text}");
    assert!(text.contains("\nok       host        identity"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 120), "{text}");
}

#[test]
fn the_directory_is_the_current_one_unless_named() {
    let (dir, _) = directory();
    let mut command = clean(LEASEHOLD);
    command.args(["doctor", "--json"]).current_dir(dir.path());
    let said = Said::from(super::support::Answer::from(command.output().unwrap()));
    assert_eq!(said.json["path"], ".");
    assert!(said.of("tried").starts_with("ok: "), "{}", said.json);
}

#[test]
fn what_is_no_directory_cannot_be_used() {
    let (dir, file) = directory();
    fs::write(&file, "a file").unwrap();
    for (path, why) in [
        (dir.path().join("none"), "No such file"),
        (file.clone(), "Not a directory"),
        (file.join("x"), "Not a directory"),
    ] {
        let said = doctor(&path);
        assert_eq!(said.code, 74, "{}", said.json);
        assert!(said.of("directory").contains(why), "{}", said.json);
    }
}

#[test]
fn who_may_write_is_told_by_the_mode() {
    let Some(host) = host() else { return };
    let (dir, _) = directory();
    for (mode, code, what) in [
        (0o755, 0, "ok: mode 0755"),
        (0o2770, 0, "ok: mode 2770: group 0 may take"),
        (0o777, 2, "warning: mode 0777: everybody may write"),
        (0o1777, 2, "warning: mode 1777: everybody may write, sticky"),
    ] {
        chmod(dir.path(), mode);
        let said = on(&host, dir.path().to_str().unwrap());
        assert_eq!(said.code, code, "{}", said.json);
        assert!(said.of("permissions").starts_with(what), "{}", said.json);
    }
}

#[test]
fn a_directory_of_somebody_else_cannot_be_used() {
    let Some(host) = host() else { return };
    if !other_users() {
        return;
    }
    let (dir, _) = directory();
    chmod(dir.path(), 0o755);
    let said = Said::from(host.leasehold_as_nobody(&format!("doctor {} --json", dir.path().display())));
    assert_eq!((said.code, said.bad()), (74, vec!["create"]), "{}", said.json);
    assert!(said.of("create").contains("Permission denied"), "{}", said.json);
}

#[test]
fn filesystems_of_one_host_are_known() {
    let Some(host) = host() else { return };
    let (dir, _) = directory();
    let path = dir.path().display();
    host.shell(&format!(
        "cd {path} && mkdir memory full files read-only over && mount -t tmpfs tmpfs memory \
         && mount -t tmpfs -o size=128k tmpfs full && mount -t tmpfs -o nr_inodes=10 tmpfs files \
         && mount -t tmpfs -o ro tmpfs read-only \
         && mkdir memory/lower memory/upper memory/work && mount -t overlay \
         -o lowerdir=memory/lower,upperdir=memory/upper,workdir=memory/work overlay over"
    ))
    .ok();
    let said = on(&host, &format!("{path}/memory/lower"));
    assert_eq!((said.code, said.bad()), (0, vec![]), "{}", said.json);
    assert!(said.of("in-memory").starts_with("note: "), "{}", said.json);
    let said = on(&host, &format!("{path}/over"));
    assert_eq!((said.code, said.bad()), (0, vec![]), "{}", said.json);
    assert!(said.of("overlay").starts_with("note: "), "{}", said.json);
    assert!(said.of("tried").contains("flock"), "{}", said.json);
    assert_eq!(
        host.shell(&format!("ls -A {path}/memory/lower {path}/over"))
            .ok()
            .matches("leasehold")
            .count(),
        0
    );

    // Not yet full: little is left.
    let said = on(&host, &format!("{path}/full"));
    assert!(said.bad().contains(&"space"), "{}", said.json);
    host.shell(&format!(
        "head -c 200000 /dev/zero > {path}/full/big; test -s {path}/full/big"
    ))
    .ok();
    let said = on(&host, &format!("{path}/full"));
    assert_eq!(said.code, 74, "{}", said.json);
    assert!(said.of("write").contains("No space left"), "{}", said.json);
    assert_eq!(host.shell(&format!("ls -A {path}/full")).ok(), "big");
    host.shell(&format!("cd {path}/files && touch 1 2 3 4 5 6 7 8 9; test -e 8"))
        .ok();
    let said = on(&host, &format!("{path}/files"));
    assert_eq!(said.code, 74, "{}", said.json);
    assert!(said.of("create").contains("No space left"), "{}", said.json);
    let said = on(&host, &format!("{path}/read-only"));
    assert_eq!(
        (said.code, said.bad().last().copied()),
        (74, Some("create")),
        "{}",
        said.json
    );
    assert!(said.of("create").contains("Read-only file system"), "{}", said.json);
}

#[test]
fn a_weak_identity_is_told() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let path = dir.path().to_str().unwrap();
    let said = on(&Host::named("localhost").start(), path);
    assert_eq!((said.code, said.bad()), (2, vec!["host-name"]), "{}", said.json);
    let said = on(&Host::named("login-a").machine("uninitialized").start(), path);
    assert_eq!((said.code, said.bad()), (2, vec!["machine-id"]), "{}", said.json);
    let container = Host::named("login-a").pid_namespace(true);
    let said = on(&container.clone().start(), path);
    assert_eq!((said.code, said.bad()), (2, vec!["container"]), "{}", said.json);
    let host = container.clone().operator_id("place-7").start();
    let said = on(&host, path);
    assert_eq!((said.code, said.bad()), (0, vec![]), "{}", said.json);
    assert!(said.of("identity").contains("operator id place-7"), "{}", said.json);
    assert!(said.of("host-id-environment").starts_with("note: "), "{}", said.json);
    let said = Said::from(host.under_outer_proc(&format!("doctor {path} --json")));
    assert_eq!((said.code, said.bad()), (74, vec!["foreign-proc"]), "{}", said.json);

    let host = Host::named("login-a").start();
    // Not what /etc/hostname says, which is that of the machine that runs the tests.
    if fs::read_to_string("/etc/hostname").is_ok_and(|name| !name.trim().is_empty() && name.trim() != "login-a") {
        assert!(on(&host, path).of("host-name-changes").starts_with("note: "));
    }
    assert!(on(&host, path).of("time-namespace").starts_with("note: "));
    host.shell("mount -t tmpfs tmpfs /mnt && cp /etc/machine-id /mnt && mount --bind /mnt/machine-id /etc/machine-id")
        .ok();
    let said = on(&host, path);
    assert_eq!(
        (said.code, said.bad()),
        (2, vec!["machine-id-transient"]),
        "{}",
        said.json
    );
}

#[test]
fn hidden_processes_are_told_to_who_does_not_see_them() {
    if !(possible() && other_users()) {
        return;
    }
    let (dir, _) = directory();
    chmod(dir.path(), 0o777);
    let host = Host::named("login-a").hidepid().operator_id("place-7").start();
    let words = format!("doctor {} --json", dir.path().display());
    let said = Said::from(host.leasehold_as_nobody(&words));
    assert!(said.of("hidepid").contains("/proc hides"), "{}", said.json);
    assert!(Said::from(host.leasehold(&words)).of("processes").starts_with("ok: "));
}

fn claim<'a>(host: &'a Host, dir: &Path, name: &str) -> Process<'a> {
    let owner = host.spawn();
    let lease = dir.join(name);
    host.leasehold(&format!("claim {} --owner {}", lease.display(), owner.pid))
        .ok();
    owner
}

#[test]
fn the_leases_there_are_counted() {
    if !(possible() && initial()) {
        return;
    }
    let (dir, _) = directory();
    let machine = "0123456789abcdef0123456789abcdef";
    let here = Host::named("login-a").machine(machine).start();
    let owner = claim(&here, dir.path(), "held.lease");
    claim(&here, dir.path(), "dead.lease").kill();
    let said = on(&here, dir.path().to_str().unwrap());
    assert_eq!(said.of("records"), "note: 2 records: 1 held, 1 dead");
    assert_eq!((said.code, said.bad()), (0, vec![]), "{}", said.json);

    // A clone, whose name differs; a board that repeats this host's boot id; what a renamed host wrote.
    let clone = Host::named("login-b").machine(machine).start();
    claim(&clone, dir.path(), "clone.lease").kill();
    let board = Host::named("board").boot(here.boot_id()).start();
    claim(&board, dir.path(), "board.lease").kill();
    let renamed = Host::named("before").machine(machine).boot(here.boot_id()).start();
    claim(&renamed, dir.path(), "renamed.lease").kill();
    fs::write(dir.path().join("future.lease"), "{\"leasehold\":99}\n").unwrap();
    fs::write(dir.path().join("torn.lease"), "{\"leasehold\":1").unwrap();
    fs::write(dir.path().join(".held.lease.t-00000000000000000000000000000000"), "").unwrap();
    fs::write(dir.path().join(".held.lease.v-00000000000000000000000000000001"), "").unwrap();
    fs::write(dir.path().join(".held.lease.ballot-9"), "").unwrap();
    fs::write(dir.path().join(".held.lease.kept-8"), "").unwrap();
    let said = on(&here, dir.path().to_str().unwrap());
    assert_eq!(said.code, 2, "{}", said.json);
    assert_eq!(
        said.of("cloned-machine-id"),
        "warning: this host's machine id is also that of login-b"
    );
    assert_eq!(
        said.of("boot-id-repeats"),
        "warning: this host's boot id is also that of board"
    );
    assert!(
        said.of("host-renamed").starts_with("note: this host was before"),
        "{}",
        said.json
    );
    assert_eq!(said.of("newer-format"), "warning: 1 of a later format");
    assert_eq!(said.of("broken-records"), "warning: 1 cut short, malformed or empty");
    assert_eq!(said.of("leftovers"), "note: 2 temp files, 2 ballots or second names");
    drop(owner);
}

/// A doctor that was killed leaves files. To others they are nothing; the next doctor removes them.
#[test]
fn what_a_killed_doctor_left_is_removed_by_the_next() {
    let (dir, _) = directory();
    let scratch = |nonce: u32| dir.path().join(format!(".leasehold-doctor.t-{nonce:032x}"));
    let meeting = dir.path().join(".leasehold-meeting-0123456789abcdef");
    fs::create_dir(&meeting).unwrap();
    for file in [
        scratch(1),
        scratch(2),
        meeting.join("host-0123456789abcdef0123456789abcdef"),
    ] {
        fs::write(file, "").unwrap();
    }
    let age = |path: &Path| {
        let hours = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 3600);
        fs::File::open(path).unwrap().set_modified(hours).unwrap();
    };
    age(&scratch(1));
    let scanned = clean(LEASEHOLD).arg("scan").arg(dir.path()).output().unwrap();
    assert!(scanned.status.success() && scanned.stdout.is_empty(), "{scanned:?}");
    // What may be another host's, and is recent, stays.
    assert_eq!(doctor(dir.path()).of("swept"), "ok: 1 files of earlier doctors removed");
    assert!(scratch(2).exists() && meeting.exists());
    age(&scratch(2));
    age(&meeting);
    doctor(dir.path());
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn help_fits_a_screen() {
    let answer = super::support::Answer::from(clean(LEASEHOLD).args(["doctor", "--help"]).output().unwrap());
    let help = answer.ok();
    assert!(help.lines().count() <= 40, "{help}");
    assert!(
        help.matches("\n  leasehold doctor").count() >= 2 && help.contains("Exit: 0"),
        "{help}"
    );
}
