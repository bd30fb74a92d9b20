//! The lab itself: that its machines are machines, and that its faults are faults.

use super::Scenario;
use super::kit::agent::{Job, Node};
use super::kit::lab::{Power, SERVER};
use super::kit::{Helper, Lab, Mount, NodeSpec, Result, ids::ProcId, net, until};
use nix::sys::signal::Signal;
use std::process::Command;
use std::time::{Duration, Instant};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "commands: codes, output, limits",
        run: commands,
    },
    Scenario {
        name: "nodes are different machines",
        run: identities,
    },
    Scenario {
        name: "a file written on a is read on b",
        run: files,
    },
    Scenario {
        name: "flock on a is refused on b",
        run: flock,
    },
    Scenario {
        name: "RPCs of a command are counted",
        run: rpcs,
    },
    Scenario {
        name: "mount options",
        run: mounts,
    },
    Scenario {
        name: "power cut of a holder, v4.2",
        run: crash_v4,
    },
    Scenario {
        name: "power cut of a holder, v3",
        run: crash_v3,
    },
    Scenario {
        name: "partition",
        run: partition,
    },
    Scenario {
        name: "pause",
        run: pause,
    },
    Scenario {
        name: "clock step",
        run: clock,
    },
    Scenario {
        name: "restart of the NFS service",
        run: service_restart,
    },
    Scenario {
        name: "power cut of the server",
        run: server_crash,
    },
    Scenario {
        name: "a dead driver leaves nothing",
        run: leftovers,
    },
];

const BOTH: [&str; 2] = ["/mnt/v4", "/mnt/v3"];
const SOON: Duration = Duration::from_secs(20);

/// A process that holds the lock until it is killed.
fn holder(node: &Node, file: &str) -> Result<Job> {
    let job = node.start(&["flock", file, "sh", "-c", "echo held; exec sleep 1000"])?;
    job.prints("held", SOON)?;
    Ok(job)
}

/// Asks for a shared lock: an exclusive one opens the file for writing, and over v4 the server then first recalls the
/// holder's read delegation, which takes a dead holder's whole lease.
fn refused(node: &Node, file: &str) -> Result<bool> {
    let words = ["flock", "--shared", "--nonblock", file, "true"];
    let done = node.cmd(&words).limit(Duration::from_secs(60)).run()?;
    match done.code {
        0 => Ok(false),
        1 => Ok(true),
        code => Err(format!("{}: flock of {file} ended with {code}: {}", node.name, done.err()).into()),
    }
}

/// Whether the lock came within `limit`.
fn obtained(node: &Node, file: &str, limit: Duration) -> Result<bool> {
    let wait = limit.as_secs().to_string();
    Ok(node
        .cmd(&["flock", "--wait", &wait, file, "true"])
        .limit(limit + SOON)
        .run()?
        .code
        == 0)
}

fn commands(lab: &mut Lab) -> Result {
    let a = lab.node("a")?;
    let done = a
        .cmd(&["sh", "-c", "cat; echo $WORD >&2; exit 7"])
        .env("WORD", "beside")
        .stdin("through")
        .run()?;
    assert_eq!(
        (done.code, done.out(), done.err()),
        (7, "through".into(), "beside".into())
    );
    assert_eq!(a.sh("kill -TERM $$")?.code, 143);
    assert_eq!(a.run(&["printf", "\\377\\0"])?.stdout, [0xff, 0]);
    assert!(a.run(&["no-such-program"]).is_err());
    let started = Instant::now();
    assert!(
        a.cmd(&["sleep", "100"])
            .limit(Duration::from_millis(300))
            .run()
            .is_err()
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(a.ok("pgrep -c sleep || true")?, "0", "what ran too long was killed");

    if super::product().is_some() {
        assert_eq!(a.ok("command -v leasehold")?, "/run/lab/bin/leasehold");
    }
    let job = a.start(&["sleep", "100"])?;
    assert!(job.wait(Duration::ZERO)?.is_none());
    job.kill(Signal::SIGTERM)?;
    assert_eq!(job.wait(SOON)?.map(|done| done.code), Some(143));
    Ok(())
}

fn identities(lab: &mut Lab) -> Result {
    let script = "cat /proc/sys/kernel/random/boot_id /etc/machine-id; hostname; readlink /proc/self/ns/pid";
    let mut seen: Vec<Vec<String>> = Vec::new();
    for name in [SERVER, "a", "b"] {
        let lines: Vec<String> = lab.node(name)?.ok(script)?.lines().map(String::from).collect();
        assert_eq!(lines[1..], [lab.machine_id(name)?, name, "pid:[4026531836]"]);
        assert!(
            seen.iter().all(|other| (0..3).all(|i| other[i] != lines[i])),
            "{lines:?} and {seen:?}"
        );
        seen.push(lines);
    }
    Ok(())
}

fn files(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("files")?);
    for mount in BOTH {
        a.ok(&format!("echo from-a > {mount}/{dir}/file"))?;
        assert_eq!(b.ok(&format!("cat {mount}/{dir}/file"))?, "from-a");
    }
    Ok(())
}

fn flock(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("flock")?);
    for mount in BOTH {
        let file = format!("{mount}/{dir}/lock");
        let job = holder(&a, &file)?;
        assert!(refused(&b, &file)?, "{mount}: refused while a holds it");
        job.kill(Signal::SIGKILL)?;
        job.wait(SOON)?;
        assert!(obtained(&b, &file, SOON)?, "{mount}: obtained when a has let go");
    }
    Ok(())
}

fn rpcs(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("rpcs")?);
    for (mount, op) in BOTH.into_iter().zip(["OPEN", "LOOKUP"]) {
        let file = format!("{mount}/{dir}/file");
        b.ok(&format!("echo from-b > {file}"))?;
        let (out, cost) = a.counting(mount, |a| a.run(&["cat", &file]))?;
        assert_eq!(out.out(), "from-b");
        assert!(
            cost.of(op) >= 1 && cost.of("READ") == 1 && cost.total() < 15,
            "{mount}: {cost}"
        );
    }
    let (_, cost) = a.counting(BOTH[0], |a| a.run(&["true"]))?;
    assert_eq!(cost.total(), 0, "{cost}");
    Ok(())
}

fn mounts(lab: &mut Lab) -> Result {
    let file = format!("{}/lock", lab.fresh_dir("mounts")?);
    lab.add(NodeSpec::client("c").mounts(vec![Mount::v3("nolock,noac"), Mount::v4("nocto,actimeo=60")]))?;
    lab.boot("c")?;
    let (b, c) = (lab.node("b")?, lab.node("c")?);
    c.ok("mkdir /mnt/all && mount -o vers=3,local_lock=all,lookupcache=all,soft,nosharecache server:/mnt/export /mnt/all")?;
    for at in ["/mnt/v3", "/mnt/all"] {
        let job = holder(&c, &format!("{at}/{file}"))?;
        assert!(
            obtained(&b, &format!("/mnt/v3/{file}"), Duration::ZERO)?,
            "a lock on {at} stays on c"
        );
        job.kill(Signal::SIGKILL)?;
    }
    let table = c.ok("cat /proc/mounts")?;
    let has = |at: &str, word: &str| table.lines().any(|l| l.contains(at) && l.contains(word));
    assert!(
        has("/mnt/v3", ",noac") && has("/mnt/v4", "nocto") && has("/mnt/all", "local_lock=all"),
        "{table}"
    );
    lab.forget("c")
}

fn crash_v4(lab: &mut Lab) -> Result {
    let (a, b) = (lab.node("a")?, lab.node("b")?);
    let file = format!("/mnt/v4/{}/lock", lab.fresh_dir("crash")?);
    holder(&a, &file)?;
    let before = a.hello()?.boot;
    lab.crash("a")?;
    assert_eq!(lab.power("a")?, Power::Off);
    assert!(refused(&b, &file)?, "the server knows nothing of the crash yet");
    assert!(
        obtained(&b, &file, Duration::from_secs(40))?,
        "the lock ends with a's NFS lease"
    );
    lab.boot("a")?;
    assert_ne!(a.hello()?.boot, before);
    assert_eq!(a.ok("cat /etc/machine-id")?, lab.machine_id("a")?);
    Ok(())
}

fn crash_v3(lab: &mut Lab) -> Result {
    let (a, b) = (lab.node("a")?, lab.node("b")?);
    let file = format!("/mnt/v3/{}/lock", lab.fresh_dir("crash")?);
    holder(&a, &file)?;
    lab.crash("a")?;
    assert!(!obtained(&b, &file, Duration::from_secs(15))?, "over v3 no lease ends");
    lab.boot("a")?;
    assert!(
        obtained(&b, &file, Duration::from_secs(40))?,
        "a's statd tells the server of the reboot"
    );
    Ok(())
}

fn partition(lab: &mut Lab) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("cut")?);
    lab.cut("a")?;
    let jobs: Vec<Job> = BOTH
        .iter()
        .map(|mount| a.start(&["sh", "-c", &format!("echo late > {mount}/{dir}/$(basename {mount})")]))
        .collect::<Result<_>>()?;
    for job in &jobs {
        assert!(job.wait(Duration::from_secs(2))?.is_none(), "a hard mount waits");
    }
    b.ok(&format!("test -z \"$(ls /mnt/v4/{dir})\""))?;
    lab.mend("a")?;
    for job in &jobs {
        assert_eq!(job.wait(Duration::from_secs(60))?.map(|done| done.code), Some(0));
    }
    assert_eq!(b.ok(&format!("cat /mnt/v3/{dir}/v4 /mnt/v4/{dir}/v3"))?, "late\nlate");
    Ok(())
}

fn pause(lab: &mut Lab) -> Result {
    let a = lab.node("a")?;
    let (before, began) = (a.hello()?, Instant::now());
    lab.pause("a")?;
    while began.elapsed() < Duration::from_secs(8) {
        assert!(a.hello().is_err());
    }
    lab.resume("a")?;
    let after = until("a answers again", SOON, || Ok(a.hello().ok()))?;
    assert_eq!(after.boot, before.boot);
    // Its wall clock went on: a pause looks like a long stall, not like a suspend.
    let lost = before.ahead - after.ahead;
    assert!(lost.abs() < 5, "{lost} s");
    Ok(())
}

fn clock(lab: &mut Lab) -> Result {
    /// Seconds that reading and setting clocks may take where a machine has more to do than cores.
    const SLACK: i64 = 10;
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("clock")?);
    lab.clock("a", 5 * 3600)?;
    let ahead = a.hello()?.ahead;
    assert!((ahead - 5 * 3600).abs() < SLACK, "{ahead}");
    assert!(b.hello()?.ahead.abs() < SLACK);
    for mount in BOTH {
        a.ok(&format!("touch {mount}/{dir}/x"))?;
        let age = b.ok(&format!("echo $(( $(date +%s) - $(stat -c %Y {mount}/{dir}/x) ))"))?;
        assert!(
            age.parse::<i64>()?.abs() < SLACK,
            "{mount}: the server's clock stamps: {age}"
        );
    }
    lab.clock("a", -6 * 3600)?;
    let ahead = a.hello()?.ahead;
    assert!((ahead + 3600).abs() < SLACK, "{ahead}");
    Ok(())
}

/// What a holds survives the server, and what is written afterwards arrives.
fn over_restart(lab: &mut Lab, keep_locks: &[&str], restart: fn(&mut Lab) -> Result) -> Result {
    let (a, b, dir) = (lab.node("a")?, lab.node("b")?, lab.fresh_dir("server")?);
    let limit = Duration::from_secs(60);
    for mount in BOTH {
        holder(&a, &format!("{mount}/{dir}/lock-{}", &mount[5..]))?;
        a.ok(&format!("echo before > {mount}/{dir}/{}", &mount[5..]))?;
    }
    restart(lab)?;
    for mount in BOTH {
        // An idle client learns of it too late: what it does not reclaim in the grace period is anybody's.
        a.cmd(&["stat", "-f", mount]).limit(limit).run()?;
    }
    for mount in BOTH {
        if keep_locks.contains(&mount) {
            // The grace period keeps b waiting until a has reclaimed.
            let lock = format!("{mount}/{dir}/lock-{}", &mount[5..]);
            assert!(refused(&b, &lock)?, "{mount}: a's lock is reclaimed");
        }
        let file = format!("{mount}/{dir}/{}", &mount[5..]);
        a.cmd(&["sh", "-c", &format!("echo after >> {file}")])
            .limit(limit)
            .run()?;
        assert_eq!(b.ok(&format!("cat {file}"))?, "before\nafter");
    }
    Ok(())
}

fn service_restart(lab: &mut Lab) -> Result {
    // Linux forgets its v3 clients when lockd stops, so nobody tells them to reclaim, and their locks are lost.
    over_restart(lab, &["/mnt/v4"], Lab::restart_nfs)
}

fn server_crash(lab: &mut Lab) -> Result {
    // What the server had noted of its clients may go with its power: whether a lock can be reclaimed is left to chance.
    over_restart(lab, &[], |lab| {
        lab.crash(SERVER)?;
        lab.boot(SERVER)
    })
}

fn leftovers(_: &mut Lab) -> Result {
    let base = tempfile::tempdir()?;
    let helper = Helper::this_program(&["scenarios", "--exact", "--nocapture", "--test-threads=1"])?;
    let alone = |guarded| -> Result<Lab> {
        let mut lab = Lab::prepare(base.path(), &helper, guarded)?;
        lab.add(NodeSpec::client("x").mounts(Vec::new()))?;
        lab.boot("x")?;
        Ok(lab)
    };
    let mut ended = Command::new("true").spawn()?;
    let dead = ProcId::of(ended.id() as i32).ok_or("not reaped yet")?;
    ended.wait()?;

    let lab = alone(true)?;
    let (run, dir) = (lab.run().to_owned(), lab.dir().to_owned());
    lab.abandon_to(dead)?;
    until("the guard clears up", SOON, || Ok((!dir.exists()).then_some(())))?;
    assert!(!net::namespace_file(&run).exists());

    // With the guard dead too, and a book whose number now belongs to another process: that one must live on.
    let mut bystander = Command::new("setsid").args(["sleep", "1000"]).spawn()?;
    let mut lab = alone(false)?;
    let (run, dir, namespace) = (
        lab.run().to_owned(),
        lab.dir().to_owned(),
        lab.namespace().ok_or("it has one")?,
    );
    let pid = bystander.id() as i32;
    until("the bystander leads its session", SOON, || {
        Ok(super::ids::stat(pid).filter(|s| s.session == pid))
    })?;
    lab.add(NodeSpec::client("y").mounts(Vec::new()))?;
    lab.forge("y", ProcId { pid, start: 1 })?;
    lab.abandon_to(dead)?;
    let next = Lab::prepare(base.path(), &helper, false)?;
    let alive = bystander.try_wait()?.is_none();
    bystander.kill()?;
    bystander.wait()?;
    assert!(alive, "a process that the run did not start");
    assert!(!dir.exists() && !net::namespace_file(&run).exists());
    assert!(super::ids::inside(namespace).is_empty());
    next.down()
}
