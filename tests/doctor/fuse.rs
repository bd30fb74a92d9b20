//! Filesystems that a program answers for: sshfs, to an SFTP server on this machine, and without parts of the protocol.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::Said;
use super::support::host::{Host, initial, possible};
use super::support::{clean, directory, eventually, names, skip_for};

const SERVER: &str = "/usr/lib/openssh/sftp-server";

fn skip(why: &str) {
    skip_for("LEASEHOLD_REQUIRE_FUSE", why);
}

/// A host with `dir/mnt` as sshfs shows `dir/store`. It has its pids for itself, and the mount ends with it.
fn mounted(dir: &Path, server: &str, sshfs: &str) -> Option<Host> {
    if !(possible() && initial()) {
        return None;
    }
    if fs::File::open("/dev/fuse").is_err() {
        skip("there is no /dev/fuse");
        return None;
    }
    if !Path::new(SERVER).exists() || clean("sshfs").arg("-V").stdout(Stdio::null()).status().is_err() {
        skip("there is no sshfs, or no sftp-server");
        return None;
    }
    let host = Host::named("login-a").start();
    let path = dir.display();
    // Without an SSH connection: the two programs talk through a pipe each way.
    let script = format!(
        "cd {path} && mkdir store mnt && mkfifo pipe && \
         ({SERVER} -e {server} < pipe | sshfs -f -o passive -o {sshfs} :{path}/store mnt > pipe) > /dev/null 2> log &
         for i in $(seq 200); do mountpoint -q {path}/mnt && exit 0; sleep 0.05; done; cat {path}/log; exit 1"
    );
    let answer = host.shell(&script);
    if answer.code != 0 {
        skip(&format!("sshfs does not mount: {answer:?}"));
        return None;
    }
    Some(host)
}

fn doctor(host: &Host, dir: &Path) -> Said {
    host.leasehold(&format!("doctor {}/mnt --json", dir.display())).into()
}

#[test]
fn sshfs_has_weaknesses() {
    let (dir, _) = directory();
    let Some(host) = mounted(dir.path(), "", "auto_unmount") else {
        return;
    };
    let said = doctor(&host, dir.path());
    assert_eq!(said.code, 2, "{}", said.json);
    assert!(said.of("mount").contains("sshfs"), "{}", said.json);
    assert!(said.of("client-cache").starts_with("warning: sshfs"), "{}", said.json);
    assert!(
        said.of("link-count")
            .starts_with("warning: two names of a file look like two files"),
        "{}",
        said.json
    );
    assert_eq!(said.of("atomic-rename"), "-", "{}", said.json);
    assert_eq!(names(&dir.path().join("store")), [""; 0]);
}

/// A server without the extensions that OpenSSH has: no hard links, and a rename that replaces nothing.
#[test]
fn a_server_that_cannot_replace_is_refused() {
    let (dir, _) = directory();
    let Some(host) = mounted(dir.path(), "-P posix-rename,hardlink", "auto_unmount") else {
        return;
    };
    let said = doctor(&host, dir.path());
    assert_eq!(said.code, 74, "{}", said.json);
    assert!(said.of("link").starts_with("warning: no hard links"), "{}", said.json);
    assert!(
        said.of("rename").starts_with("problem: rename does not replace"),
        "{}",
        said.json
    );
    assert_eq!(names(&dir.path().join("store")), [""; 0]);
}

#[test]
fn a_mount_that_does_not_answer_is_named() {
    let (dir, _) = directory();
    let Some(host) = mounted(dir.path(), "", "dir_cache=no,entry_timeout=0,attr_timeout=0") else {
        return;
    };
    // Both ends of the pipes; those of other tests are in other mount namespaces, which have no such directory.
    let inside = format!(
        "for p in /proc/[0-9]*; do case $(readlink $p/cwd) in {}*) kill -$1 ${{p#/proc/}};; esac; done",
        dir.path().display()
    );
    let send = |signal: &str| host.run(&["sh", "-c", &inside, "sh", signal]);
    send("STOP");
    let mut said = None;
    eventually("the doctor comes back", || {
        said = Some(host.leasehold(&format!("doctor {}/mnt --json --patience 1s", dir.path().display())));
        true
    });
    send("CONT");
    let said = Said::from(said.unwrap());
    assert_eq!(said.code, 74, "{}", said.json);
    assert!(
        said.of("hangs").contains("stat") && said.of("hangs").contains("has not answered for 1 s"),
        "{}",
        said.json
    );
    assert!(
        said.of("identity").starts_with("ok: "),
        "what is known of the host is told all the same"
    );
}
