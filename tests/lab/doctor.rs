//! What the doctor says of real mounts, and what two hosts find out about them together.

use super::Scenario;
use super::kit::agent::Node;
use super::kit::{Lab, Result, until};
use super::product::{SOON, claim};
use serde_json::Value;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "doctor: what one host tells of a mount",
        run: alone,
    },
    Scenario {
        name: "doctor: hosts meet",
        run: meet,
    },
    Scenario {
        name: "doctor: a host vanishes from a meeting",
        run: vanished,
    },
    Scenario {
        name: "doctor: a mount that does not answer",
        run: hung,
    },
];

/// Mounts of one export, as both nodes have them: the place, and the options where it has to be mounted first.
const MOUNTS: [(&str, &str); 4] = [
    ("/mnt/v4", ""),
    ("/mnt/v3", ""),
    ("/mnt/local", "vers=3,local_lock=all"),
    ("/mnt/cached", "vers=3,nocto,actimeo=60"),
];

fn mount(node: &Node) -> Result {
    for (at, options) in MOUNTS.into_iter().filter(|(_, options)| !options.is_empty()) {
        node.ok(&format!(
            "mkdir -p {at}; mountpoint -q {at} || mount -t nfs -o {options},nosharecache server:/mnt/export {at}"
        ))?;
    }
    Ok(())
}

fn unmount(node: &Node) -> Result {
    for (at, options) in MOUNTS {
        if !options.is_empty() {
            node.ok(&format!("umount {at}"))?;
        }
    }
    Ok(())
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}").into())
}

/// A finding as `level what`.
fn finding(report: &Value, id: &str) -> String {
    let all = report["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|finding| finding["id"] == id);
    let word = |key: &str| found.and_then(|finding| finding[key].as_str()).unwrap_or("-");
    format!("{} {}", word("level"), word("what"))
}

fn alone(lab: &mut Lab) -> Result {
    let (a, dir) = (lab.node("a")?, lab.fresh_dir("doctor")?);
    mount(&a)?;
    claim(&a, &format!("/mnt/v4/{dir}/x.lease"), &[])?;
    let expected = [
        (
            "NFS 4.2, hard, attributes cached for 3 to 60 s, the server keeps locks",
            "-",
        ),
        (
            "NFS 3, hard, attributes cached for 3 to 60 s, the server keeps locks",
            "note",
        ),
        (
            "NFS 3, hard, attributes cached for 3 to 60 s, locks stay on this host",
            "note",
        ),
        ("nocto, the server keeps locks", "note"),
    ];
    for ((at, _), (words, locks)) in MOUNTS.into_iter().zip(expected) {
        let done = a.run(&["leasehold", "doctor", &format!("{at}/{dir}"), "--json"])?;
        let report = json(&done.out())?;
        assert!(finding(&report, "mount").ends_with(words), "{at}: {}", done.out());
        assert_eq!(finding(&report, "locks").split(' ').next(), Some(locks), "{at}");
        assert!(finding(&report, "tried").starts_with("ok "), "{at}: {}", done.out());
        assert_eq!(
            finding(&report, "records").split(' ').next(),
            Some("ok"),
            "{at}: {}",
            done.out()
        );
        for id in [
            "create",
            "write",
            "link",
            "link-count",
            "rename",
            "atomic-rename",
            "inode",
            "beat",
        ] {
            assert_eq!(finding(&report, id), "- -", "{at}");
        }
        assert_eq!(a.ok(&format!("ls -A {at}/{dir}"))?, "x.lease", "nothing is left");
    }
    // By its own clock the host is an hour ahead: it is told from the server's.
    lab.clock("a", 3600)?;
    let done = a.run(&["leasehold", "doctor", &format!("/mnt/v4/{dir}"), "--json"])?;
    assert_eq!(done.code, 2, "{}", done.out());
    let clock = finding(&json(&done.out())?, "clock");
    let far = clock.starts_with("warning files are stamped by a clock 3") && clock.contains("behind this host's");
    assert!(far, "{clock}");
    unmount(&a)
}

fn meet(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("meet")?);
    mount(&a)?;
    mount(&b)?;
    for (at, options) in MOUNTS {
        let began = Instant::now();
        let words = ["leasehold", "doctor", &format!("{at}/{dir}"), "--json", "--meet", "lab"];
        let (one, other) = (a.start(&words)?, b.start(&words)?);
        let limit = Duration::from_secs(180);
        let (one, other) = (one.wait(limit)?, other.wait(limit)?);
        let (one, other) = (one.ok_or("a still meets")?, other.ok_or("b still meets")?);
        println!("{at} {options}: met in {:.1} s", began.elapsed().as_secs_f64());
        assert_eq!((one.code, other.code), (0, 0), "{at}: {} {}", one.out(), one.err());
        assert_eq!(one.out(), other.out(), "both say the same");
        let report = json(&one.out())?;
        for id in [
            "see-create",
            "see-replace",
            "see-remove",
            "see-own-loss",
            "see-no-gap",
            "ids",
            "one-clock",
        ] {
            assert!(finding(&report, id).starts_with("ok "), "{at} {id}: {}", one.out());
        }
        for id in ["one-link", "one-create"] {
            let won = finding(&report, id);
            assert!(
                won.starts_with("ok one winner in each of 500 rounds"),
                "{at} {id}: {won}"
            );
        }
        let local = options.contains("local_lock");
        for (id, words) in [("flock", "flock"), ("fcntl-lock", "fcntl locks")] {
            let expected = if local {
                format!("note {words} do not exclude between hosts (granted to two 2 of 2 times)")
            } else {
                format!("ok {words} exclude between hosts")
            };
            assert_eq!(finding(&report, id), expected, "{at}");
        }
        for id in ["getlk-flock", "getlk-fcntl"] {
            let told = if local { "note " } else { "ok " };
            assert!(finding(&report, id).starts_with(told), "{at}: {}", one.out());
        }
        assert_eq!(a.ok(&format!("ls -A {at}/{dir}"))?, "", "nothing is left");
    }
    unmount(&a)?;
    unmount(&b)
}

fn vanished(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("vanished")?);
    let words = [
        "leasehold",
        "doctor",
        &format!("/mnt/v4/{dir}"),
        "--json",
        "--meet",
        "lab",
    ];
    let (one, _other) = (a.start(&words)?, b.start(&words)?);
    until("they have found each other", SOON, || {
        let said = a.ok(&format!(
            "cat /mnt/v4/{dir}/.leasehold-meeting-*/host-* 2>/dev/null || true"
        ))?;
        Ok(said.contains("\"create 0.0\":").then_some(()))
    })?;
    lab.crash("b")?;
    let done = one.wait(Duration::from_secs(120))?.ok_or("it still meets")?;
    assert_eq!(done.code, 75, "{} {}", done.out(), done.err());
    let said = done.out();
    assert!(said.contains("b left the meeting, or gives no sign of life"), "{said}");
    assert_eq!(a.ok(&format!("ls -A /mnt/v4/{dir}"))?, "", "nothing is left");
    Ok(())
}

fn hung(lab: &mut Lab) -> Result {
    let (a, dir) = (lab.node("a")?, lab.fresh_dir("hung")?);
    lab.cut("a")?;
    let words = ["leasehold", "doctor", &format!("/mnt/v4/{dir}"), "--patience", "5s"];
    let done = a.cmd(&words).limit(Duration::from_secs(60)).run()?;
    assert_eq!(done.code, 74, "{} {}", done.out(), done.err());
    assert!(done.out().contains("hangs"), "{}", done.out());
    assert!(
        done.out()
            .contains(&format!("stat /mnt/v4/{dir}/. has not answered for 5 s")),
        "{}",
        done.out()
    );
    lab.mend("a")
}
