//! OpenSSH as the transport, to a server of the test's own on the loopback.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use super::place::Place;
use super::support::host::{Host, claim, possible};
use super::support::{Answer, LEASEHOLD, chmod, clean, eventually, is_root, skip_for, verdict};

fn skip(why: &str) {
    skip_for("LEASEHOLD_REQUIRE_SSH", why);
}

fn key(path: &Path) {
    let made: Answer = clean("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(path)
        .output()
        .unwrap()
        .into();
    made.ok();
}

#[test]
fn openssh_carries_the_question() {
    const SSHD: &str = "/usr/sbin/sshd";
    if !possible() {
        return;
    }
    if !Path::new(SSHD).exists() || clean("ssh").arg("-V").output().is_err() {
        return skip("there is no OpenSSH");
    }
    if !is_root() {
        return skip("only root can start a server on a second host");
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    // Where sshd wants a directory of root's; on this host alone.
    a.shell("mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd").ok();
    let own = |name: &str| place.own(name).display().to_string();
    key(&place.own("host-key"));
    key(&place.own("user-key"));
    fs::copy(place.own("user-key.pub"), place.own("authorized")).unwrap();
    chmod(place.own("authorized"), 0o600);

    let mut server = None;
    // Another program may take a port that was free a moment ago.
    for _ in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nPrintMotd no\n",
            own("host-key"),
            own("authorized")
        );
        fs::write(place.own("sshd.conf"), config).unwrap();
        let config = format!(
            "Host *\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
             IdentityAgent none\n  UserKnownHostsFile {}\n  GlobalKnownHostsFile /dev/null\n  \
             StrictHostKeyChecking yes\n  LogLevel ERROR\n",
            own("user-key"),
            own("known")
        );
        fs::write(place.own("ssh.conf"), config).unwrap();
        let public = fs::read_to_string(place.own("host-key.pub")).unwrap();
        fs::write(place.own("known"), format!("[127.0.0.1]:{port} {public}")).unwrap();
        let mut child = a
            .command(SSHD)
            .args(["-D", "-e", "-f", &own("sshd.conf")])
            .stdout(Stdio::null())
            .stderr(fs::File::create(place.own("sshd.log")).unwrap())
            .spawn()
            .unwrap();
        let mut ended = false;
        eventually("the server listens, or has ended", || {
            ended = child.try_wait().unwrap().is_some();
            ended || fs::read_to_string(place.own("sshd.log")).is_ok_and(|log| log.contains("Server listening"))
        });
        if !ended {
            server = Some(child);
            break;
        }
    }
    let log = || fs::read_to_string(place.own("sshd.log")).unwrap_or_default();
    let Some(mut server) = server else {
        return skip(&format!("sshd does not start: {}", log()));
    };
    let via = format!("ssh -F {} -oBatchMode=yes {{host}}", own("ssh.conf"));

    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    let odd = place.file("it's a; $(lease)").to_str().unwrap().to_owned();
    claim(&a, &odd, bridge.pid);
    let told = place.ask(&via, &["--timeout", "60s"]);
    assert_eq!(verdict(&told), "held/asked", "{told:?} {}", log());
    assert_eq!(told.stderr, "");
    let told = place.ask_about(clean(LEASEHOLD), &via, &["--timeout", "60s"], &[&odd]);
    assert_eq!(verdict(&told), "held/asked", "{told:?}");
    bridge.kill();
    assert_eq!(verdict(&place.ask(&via, &["--timeout", "60s"])), "dead/asked");

    // Not the host that is known by this name, and a key that is refused: as ssh says it.
    let known = fs::read(place.own("known")).unwrap();
    fs::write(place.own("known"), "").unwrap();
    let told = place.ask(&via, &["--timeout", "60s"]);
    assert_eq!(verdict(&told), "undetermined/foreign-host");
    assert!(told.stderr.contains("Host key verification failed"), "{told:?}");
    fs::write(place.own("known"), known).unwrap();
    fs::write(place.own("authorized"), "").unwrap();
    let told = place.ask(&via, &["--timeout", "60s"]);
    assert_eq!(verdict(&told), "undetermined/foreign-host");
    assert!(told.stderr.contains("Permission denied"), "{told:?}");

    let _ = server.kill();
    let _ = server.wait();
    let told = place.ask(&via, &["--timeout", "60s"]);
    // nsenter was the server itself.
    assert_eq!(verdict(&told), "undetermined/foreign-host");
    assert!(told.stderr.contains("Connection refused"), "{told:?}");
}
