//! `leasehold scan`: every record of a directory, whatever stands beside it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use leasehold::facts::ProcessFacts;
use leasehold::{Finding, Judge, KernelTable, Pid, ProcessTable, Reason, Scan, Verdict};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::leasehold;
use crate::records::*;
use crate::support::faulty::stand_in::{Call, stand_in};
use crate::support::*;

#[test]
fn what_is_a_record_is_told_by_content_and_only_then_by_name() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let record = record_of(owner.pid());
    let mut ended = record.clone();
    ended.owner.ended = Some("2026-01-02T03:04:05Z".into());
    let newer = String::from_utf8(record.print()).unwrap().replacen(":1,", ":2,", 1);
    dir.put("any-name", &record);
    dir.put("ended.lease", &ended);
    dir.write("newer", newer);
    dir.write("cut", &record.print()[..100]);
    dir.write("just-begun", "{\"lea");
    dir.write("empty.lease", "");
    dir.write("zeros.lease", [0; 300]);
    dir.write("large.lease", vec![b' '; 70_000]);
    dir.write("pid.lease", "4194000\n{}\n");
    dir.link("link.lease", "any-name");
    let fifo = std::process::Command::new("mkfifo")
        .arg(dir.file("fifo.lease"))
        .status()
        .unwrap();
    assert!(fifo.success());
    // None of these.
    dir.write("empty", "");
    dir.write("notes.txt", "hello\n");
    dir.write("other.json", "{\"pid\": 7}\n");
    dir.write("old.pid", "4194000\n");
    dir.link("link", "any-name");
    dir.put(".any-name.t-0123456789abcdef0123456789abcdef", &record);
    dir.link(".any-name.ballot-8", ".any-name.t-0123456789abcdef0123456789abcdef");
    dir.put(".nfs0000000001", &record);
    dir.put("any-name.broken-2", &record);
    std::fs::create_dir(dir.file("sub.lease")).unwrap();
    dir.put("sub.lease/below", &ended);
    dir.link("loop", ".");

    let before = snapshot(dir.path());
    let answer = leasehold!("scan", dir.path());
    assert_eq!(answer.code, 0, "all could be read: {answer:?}");
    let want = [
        "any-name: held process-running",
        "cut: undetermined torn",
        "empty.lease: undetermined empty",
        "ended.lease: free ended",
        "fifo.lease: undetermined not-a-file",
        "just-begun: undetermined torn",
        "large.lease: undetermined too-large",
        "link.lease: undetermined symlink",
        "newer: undetermined newer-format",
        "pid.lease: undetermined malformed",
        "zeros.lease: undetermined torn",
    ];
    assert_eq!(answer.verdicts(), want);
    assert_eq!(snapshot(dir.path()), before, "scanning changes nothing");

    let below = leasehold!("scan", dir.path(), "--recursive").verdicts();
    let mut all: Vec<&str> = want.to_vec();
    all.insert(10, "below: free ended");
    assert_eq!(below, all);
}

#[test]
fn columns_counts_and_what_to_do_next() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let pid = owner.pid();
    dir.put(
        "a.lease",
        &with(record_of(pid), &[("role", "bridge"), ("thread", "t\t7")]),
    );
    dir.put("b.lease", &with(foreign(pid), &[("role", "bridge")]));
    let mut gone = with(record_of(pid), &[("role", "worker"), ("intent", "push")]);
    (gone.owner.start, gone.owner.pidfd) = (Some(1), gone.owner.pidfd.map(|inode| inode + 1));
    dir.put("c.lease", &gone);
    let place = |name: &str| dir.file(name).display().to_string();

    let answer = leasehold!("scan", dir.path(), "--field", "role", "--field", "thread");
    let rows = answer.rows();
    let here = leasehold::identity::Host::here().observer.host.unwrap();
    let first = ["held", "process-running", &here, &pid.to_string()];
    assert_eq!(rows[0][..4], first);
    assert!(rows[0][4].parse::<u64>().unwrap() > 0, "seconds since it was claimed");
    assert_eq!(rows[0][5..], ["sleep 1000", &place("a.lease"), "bridge", "t\\t7"]);
    let foreign = ["undetermined", "foreign-host", "login-z", &pid.to_string()];
    assert_eq!(rows[1][..4], foreign);
    assert_eq!(
        rows[1][5..],
        ["-", &place("b.lease"), "bridge", "-"],
        "a stranger under a foreign pid is not told"
    );
    assert_eq!(rows[2][..2], ["dead", "pid-reused"]);
    assert_eq!(rows[2][5], "sleep 1000");
    assert!(
        answer.stderr.starts_with("3 records: 1 held, 1 dead, 1 undetermined\n"),
        "{}",
        answer.stderr
    );
    for advice in ["leasehold settle ", "ssh login-z leasehold scan ", "1 in doubt"] {
        assert!(answer.stderr.contains(advice), "{advice}: {}", answer.stderr);
    }

    let bridges = leasehold!(
        "scan",
        dir.path(),
        "--where",
        "role=bridge",
        "--only",
        "held",
        "--only",
        "dead"
    );
    assert_eq!(bridges.verdicts(), ["a.lease: held process-running"]);
    assert!(bridges.stderr.starts_with("1 record: 1 held\n"), "{}", bridges.stderr);
    let none = leasehold!("scan", dir.path(), "--where", "role=nobody");
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (0, "", "0 records\n")
    );

    let objects = leasehold!("scan", dir.path(), "--json").objects();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[0]["path"], json!(dir.file("a.lease")));
    assert_eq!(objects[0]["state"], json!({ "role": "bridge", "thread": "t\t7" }));
    assert_eq!(
        (&objects[0]["now"], &objects[1]["now"]),
        (&json!("sleep 1000"), &json!(null))
    );
    assert!(objects[1]["next"].as_str().unwrap().contains("ssh login-z"));
    for wrong in [vec!["--only", "alive"], vec!["--jobs", "0"], vec!["--where", "role"]] {
        let answer = Answer::from(
            clean(LEASEHOLD)
                .arg("scan")
                .arg(dir.path())
                .args(&wrong)
                .output()
                .unwrap(),
        );
        assert_eq!(answer.code, 64, "{wrong:?}");
    }
    assert_eq!(leasehold!("scan").code, 64);
    assert_eq!(
        leasehold!("scan", dir.path(), "--stop-orphans").code,
        64,
        "of everything: never"
    );
}

#[test]
fn a_table_on_a_terminal() {
    let (dir, owner) = (Dir::new(), Running::idle());
    dir.put("a.lease", &record_of(owner.pid()));
    let words = format!("{LEASEHOLD} scan {}", dir.path().display());
    let Ok(output) = clean("script").args(["-qec", &words, "/dev/null"]).output() else {
        return skip("there is no script(1) to make a terminal");
    };
    let answer = Answer::from(output);
    let lines: Vec<_> = answer.stdout.lines().map(str::trim_end).collect();
    let head: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(
        head,
        ["VERDICT", "REASON", "HOST", "PID", "AGE", "NOW", "PATH"],
        "{answer:?}"
    );
    let (path, row) = (dir.file("a.lease"), lines[1]);
    assert!(
        row.starts_with("held     process-running  ") && row.ends_with(path.to_str().unwrap()),
        "{row}"
    );
    assert_eq!(
        lines[0].find("PATH"),
        row.find(path.to_str().unwrap()),
        "columns stand under each other"
    );
    assert_eq!(lines[2], "1 record: 1 held");
    assert!(lines[3].contains("leasehold stop PATH"), "{answer:?}");
}

#[test]
fn what_cannot_be_read_is_listed_and_ends_nothing() {
    let (dir, owner) = (Dir::new(), Running::idle());
    dir.put("a.lease", &record_of(owner.pid()));
    let secret = dir.put("secret", &record_of(owner.pid()));
    chmod(&secret, 0o0);
    std::fs::create_dir(dir.file("closed")).unwrap();
    chmod(dir.file("closed"), 0o0);
    let scan = |words: &[&str]| {
        let mut command = as_nobody(LEASEHOLD);
        Answer::from(command.arg("scan").args(words).arg(dir.path()).output().unwrap())
    };
    let answer = scan(&[]);
    let want = ["a.lease: held process-running", "secret: undetermined unreadable"];
    assert_eq!(
        (answer.code, &answer.verdicts()[..]),
        (74, &want.map(str::to_owned)[..]),
        "{answer:?}"
    );
    let deep = scan(&["--recursive"]);
    assert_eq!((deep.code, deep.verdicts().len()), (74, 2));
    assert!(deep.stderr.contains("closed: Permission denied"), "{deep:?}");
    chmod(dir.file("closed"), 0o700);

    let twice = leasehold!("scan", dir.file("nowhere"), dir.path());
    assert_eq!(twice.code, 74);
    assert!(twice.stderr.contains("nowhere: No such file"), "{twice:?}");
    assert_eq!(twice.rows().len(), 2, "the other directory is listed");
    // A record that is named itself, and a directory through a link.
    let named = leasehold!(
        "scan",
        dir.file("a.lease"),
        dir.link("alias", dir.path().to_str().unwrap())
    );
    assert_eq!(named.rows().len(), 3, "{named:?}");
}

/// A thread, a zombie, and a process whose start time is hidden.
#[test]
fn numbers_that_are_no_running_process() {
    let dir = Dir::new();
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid().as_raw()).unwrap();
        let _ = ended.recv();
    });
    let mut of_thread = record_of(Pid::new(std::process::id().into()).unwrap());
    of_thread.owner.pid = Pid::new(told.recv().unwrap().into());
    of_thread.owner.pidfd = None;
    dir.put("thread.lease", &of_thread);
    let zombie = Running::idle();
    dir.put("zombie.lease", &record_of(zombie.pid()));
    zombie.signal(Signal::SIGKILL);
    eventually("it has exited", || zombie.process.state() == Some('Z'));

    let answer = leasehold!("scan", dir.path());
    assert_eq!(
        answer.verdicts(),
        ["thread.lease: dead not-a-process", "zombie.lease: dead zombie"]
    );
    assert_eq!(answer.rows()[1][5], "[sleep]");
    drop(end);
    thread.join().unwrap();
}

/// Under hidepid nobody's start times but one's own can be read: without pidfs that is not enough to know a process
/// again, and it is never taken for gone.
#[test]
fn a_process_that_hidepid_hides_is_not_dead() {
    if !is_root() {
        return skip("only root can mount a /proc that hides processes");
    }
    let (dir, owner) = (Dir::new(), Running::idle());
    let mut record = record_of(owner.pid());
    let inode = record.owner.pidfd.take();
    dir.put("ticks.lease", &record);
    record.owner.pidfd = inode;
    dir.put("inode.lease", &record);
    let script = format!("mount -t proc -o hidepid=2 proc /proc && exec {NOBODY} \"$@\"");
    let mut command = clean("unshare");
    command
        .args(["--mount", "--", "sh", "-c", &script, "-", LEASEHOLD, "scan"])
        .arg(dir.path());
    let answer = Answer::from(command.output().expect("unshare starts"));
    if answer.code != 0 {
        return skip(&format!("no mount of /proc here: {}", answer.stderr.trim()));
    }
    let by_inode = match inode {
        Some(_) => "inode.lease: held process-running",
        None => "inode.lease: undetermined start-unreadable",
    };
    assert_eq!(
        answer.verdicts(),
        [by_inode, "ticks.lease: undetermined start-unreadable"]
    );
}

/// Counts who is asked about.
#[derive(Debug, Default)]
struct Counting(Mutex<HashMap<i32, usize>>);

impl ProcessTable for Counting {
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts {
        *self.0.lock().unwrap().entry(pid.get()).or_default() += 1;
        KernelTable.probe(pid, pidfd)
    }
}

fn findings(scan: Scan) -> Vec<Finding> {
    let mut all = Vec::new();
    let swept = scan.run(|finding| all.push(finding));
    assert!(swept.failures.is_empty(), "{:?}", swept.failures);
    all
}

#[test]
fn each_pid_is_asked_about_once_and_a_foreign_one_never() {
    let (dir, owners) = (Dir::new(), [Running::idle(), Running::idle()]);
    for n in 0..120 {
        let mut record = record_of(owners[n % 2].pid());
        match n % 3 {
            0 => record.owner.pidfd = None,
            1 => record.owner.pid = Pid::new(4_194_000),
            _ => {}
        }
        dir.put(&format!("{n:03}.lease"), &record);
        dir.put(&format!("{n:03}.foreign"), &foreign(Pid::new(1).unwrap()));
    }
    let table = Arc::new(Counting::default());
    let found = findings(Scan::new([dir.path()]).from(Judge::here().with_table(table.clone())));
    let count = |verdict| {
        found
            .iter()
            .filter(|finding| finding.judgement.verdict == verdict)
            .count()
    };
    let counts = [Verdict::Held, Verdict::Dead, Verdict::Undetermined].map(count);
    assert_eq!(counts, [80, 40, 120]);
    assert!(found.is_sorted_by_key(|finding| &finding.path));
    let mut asked: Vec<_> = table.0.lock().unwrap().clone().into_iter().collect();
    asked.sort_unstable();
    let mut want = vec![(owners[0].pid().get(), 1), (owners[1].pid().get(), 1), (4_194_000, 1)];
    want.sort_unstable();
    assert_eq!(asked, want);
}

/// Releases a record, and ends its owner, just before it is asked about.
#[derive(Debug)]
struct Leaving {
    owner: Mutex<Option<Running>>,
    record: std::path::PathBuf,
}

impl ProcessTable for Leaving {
    fn probe(&self, pid: Pid, pidfd: bool) -> ProcessFacts {
        if let Some(mut owner) = self.owner.lock().unwrap().take() {
            let token = read(&self.record).owner.token;
            leasehold::Holder::new(&self.record, token)
                .unwrap()
                .release(None)
                .unwrap();
            owner.kill();
        }
        KernelTable.probe(pid, pidfd)
    }
}

/// A claim that ends while the scan is under way was not that of somebody who died.
#[test]
fn what_is_released_after_it_was_read_is_not_dead() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let path = dir.put("x.lease", &record_of(owner.pid()));
    let table = Leaving {
        owner: Mutex::new(Some(owner)),
        record: path,
    };
    let found = findings(Scan::new([dir.path()]).from(Judge::here().with_table(Arc::new(table))));
    assert_eq!(found[0].judgement.reason, Reason::Ended);
}

/// Real files of which so many reads have to be under way at once before one is answered, and never more.
#[derive(Debug)]
struct Meeting {
    wanted: usize,
    /// Under way now, the most there were, and whether they have met.
    state: Mutex<(usize, usize, bool)>,
    met: Condvar,
    /// Files that were reported while the last of them was waited for.
    reported: AtomicUsize,
}

impl Meeting {
    fn meet<T>(&self, call: impl FnOnce() -> T) -> T {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        state.1 = state.1.max(state.0);
        if state.0 >= self.wanted {
            state.2 = true;
            self.met.notify_all();
        }
        let patience = Duration::from_secs(20);
        let (state, _) = self.met.wait_timeout_while(state, patience, |state| !state.2).unwrap();
        drop(state);
        let answer = call();
        self.state.lock().unwrap().0 -= 1;
        answer
    }
}

impl Meeting {
    fn pass<T>(&self, call: Call, make: impl Fn() -> io::Result<T>) -> io::Result<T> {
        assert!(
            !call.changes() && call != Call::Lock,
            "a scan makes this call: {call:?}"
        );
        match call {
            Call::Open => self.meet(make),
            // No file is read to its end before somebody has been told how far it is.
            Call::Read => {
                eventually("progress is reported", || self.reported.load(Ordering::Relaxed) > 0);
                make()
            }
            _ => make(),
        }
    }
}

stand_in!(Meeting);

/// An NFS client puts a file aside that it replaces: for a moment the record has only its second name.
#[test]
fn what_has_only_its_second_name_is_listed() {
    let dir = Dir::new();
    let held = dir.file("held");
    let token = leasehold::Lease::claim(&held).unwrap().leave();
    std::fs::rename(&held, dir.file(".held.kept-1")).unwrap();
    // A claim of what does not exist yet is under way: its ballot is no record.
    let new = dir.file("new.lease");
    leasehold::Lease::claim(&new).unwrap().leave();
    let change = read(&new).owner.change.unwrap();
    std::fs::hard_link(&new, dir.file(".new.lease.ballot-1")).unwrap();
    std::fs::rename(
        &new,
        dir.path().join(leasehold::names::temp("new.lease".as_ref(), change)),
    )
    .unwrap();

    let answer = leasehold!("scan", dir.path());
    assert_eq!(
        (answer.code, answer.verdicts()),
        (0, vec!["held: held process-running".into()])
    );
    let answer = leasehold!("scan", dir.path(), "--json");
    assert_eq!(answer.objects()[0]["owner"]["token"], token.to_string(), "{answer:?}");
    assert_eq!(leasehold!("scan", &held).verdicts(), ["held: held process-running"]);
    assert_eq!(leasehold!("scan", &new).code, 74);
}

#[test]
fn reads_are_made_at_once_and_within_bounds() {
    let (dir, owner) = (Dir::new(), Running::idle());
    let record = record_of(owner.pid());
    for n in 0..40 {
        dir.put(&format!("{n}.lease"), &record);
    }
    let fs = Arc::new(Meeting {
        wanted: 8,
        state: Mutex::default(),
        met: Condvar::new(),
        reported: AtomicUsize::new(0),
    });
    let jobs = std::num::NonZeroUsize::new(8).unwrap();
    let mut found = 0;
    Scan::new([dir.path()])
        .from(Judge::here().with_fs(fs.clone()))
        .jobs(jobs)
        .on_progress(|files| {
            assert!(files <= 40);
            fs.reported.fetch_add(1, Ordering::Relaxed);
        })
        .run(|finding| found += usize::from(finding.judgement.verdict == Verdict::Held));
    let state = *fs.state.lock().unwrap();
    assert_eq!(
        (found, state.1, state.2),
        (40, 8, true),
        "so many were under way, and no more"
    );
}

#[test]
fn stop_orphans_ends_what_matches_here_and_nothing_else() {
    let dir = Dir::new();
    let mut run: Vec<_> = (0..4).map(|_| Running::idle()).collect();
    let role = |role: &'static str| [("role", role)];
    dir.put("a.lease", &with(record_of(run[0].pid()), &role("bridge")));
    dir.put("b.lease", &with(record_of(run[1].pid()), &role("bridge")));
    dir.put("other.lease", &with(record_of(run[2].pid()), &role("worker")));
    let foreign = dir.put("z.lease", &with(foreign(run[3].pid()), &role("bridge")));
    let before = std::fs::read(&foreign).unwrap();
    let answer = leasehold!("scan", dir.path(), "--where", "role=bridge", "--stop-orphans", "--json");
    assert_eq!(answer.code, 0, "{answer:?}");
    let objects = answer.objects();
    assert_eq!(objects.len(), 3, "the foreign one is listed");
    for (at, process) in run[..2].iter_mut().enumerate() {
        let how = format!("process {} ended by SIGTERM", process.pid());
        assert_eq!(objects[at]["stopped"], how, "{answer:?}");
        assert_eq!(process.ended_by(), Some(15));
    }
    assert_eq!(objects[2]["verdict"], "undetermined");
    assert_eq!(objects[2].get("stopped"), None);
    assert!(
        answer.stderr.contains("\n3 records: 1 undetermined, 2 free\n"),
        "counted as they are now: {answer:?}"
    );
    assert!(run[2].runs() && run[3].runs());
    assert_eq!(std::fs::read(&foreign).unwrap(), before);
    assert!(read(&dir.file("a.lease")).owner.ended.is_some() && read(&dir.file("other.lease")).owner.ended.is_none());
}

#[test]
fn processes_that_outlived_their_record_are_listed() {
    let dir = Dir::new();
    let owner = Running::idle();
    let current = record_of(owner.pid());
    let mut ended = current.clone();
    ended.owner.ended = Some("2026-01-02T03:04:05Z".into());
    let token = current.owner.token.to_string();
    dir.put("current.lease", &current);
    dir.put("ended.lease", &ended);
    dir.write("broken.lease", "{\"leasehold\":1,");
    let carrier = |token: &str, path: &str| {
        let mut command = clean("sleep");
        command.arg("1000").current_dir(dir.path());
        Running::start(command.env("LEASEHOLD_TOKEN", token).env("LEASEHOLD_PATH", path))
    };
    let absolute = dir.file("gone.lease");
    let mut run = [
        carrier(&token, absolute.to_str().unwrap()),
        carrier(&token, "ended.lease"),
        carrier("000000000000000000000000000000ff", "current.lease"),
        carrier(&token, "broken.lease"),
        carrier(&token, "current.lease"),
        carrier("no token", "gone.lease"),
        Running::idle(),
    ];
    let list = |answer: &Answer| -> Vec<Option<String>> {
        let why = |process: &Running| {
            let rows = answer.rows();
            let found = rows.iter().find(|row| row[0] == "orphan" && row[3] == process.id());
            found.map(|row| row[1].clone())
        };
        run.iter().map(why).collect()
    };
    let answer = leasehold!("scan", "--processes");
    assert_eq!(answer.code, 0, "{answer:?}");
    let why = ["record-gone", "record-ended", "another-claim", "unknown"].map(|why| Some(why.to_owned()));
    let found = list(&answer);
    assert_eq!(found[..4], why, "{answer:?}");
    assert_eq!(found[4..], [None, None, None]);
    let row = answer.rows().into_iter().find(|row| row[3] == run[0].id()).unwrap();
    assert_eq!(row[5..], ["sleep 1000", absolute.to_str().unwrap()]);
    let objects = leasehold!("scan", dir.path(), "--processes", "--json").objects();
    assert_eq!(objects[0]["verdict"], "undetermined", "records first: {objects:?}");
    let object = objects
        .iter()
        .find(|object| object["orphan"]["pid"] == run[1].pid().get())
        .unwrap();
    assert_eq!(object["path"], json!(dir.file("ended.lease")));
    assert!(run.iter_mut().all(Running::runs), "nothing is done to them");
}

/// Five thousand files of all kinds, while others claim and release, and files come and go.
#[test]
fn a_sweep_over_a_busy_directory() {
    const FILES: usize = 5000;
    let (dir, owner, mut late) = (Dir::new(), Running::idle(), Running::idle());
    chmod(dir.path(), 0o777);
    let (held, foreign) = (record_of(owner.pid()).print(), foreign(owner.pid()).print());
    let dead = record_of(late.pid()).print();
    late.kill();
    let mut want = HashMap::new();
    let vanishing: Vec<_> = (0..FILES / 10).map(|n| dir.file(&format!("v{n:04}.lease"))).collect();
    for n in 0..FILES - vanishing.len() {
        let name = format!("f{n:04}.lease");
        let path = dir.file(&name);
        let (bytes, reason) = match n % 6 {
            0 => (&held[..], "process-running"),
            1 => (&dead[..], "no-such-process"),
            2 => (&foreign[..], "foreign-host"),
            3 => (&held[..held.len() - n % 200 - 1], "torn"),
            4 => (&held[..], "unreadable"),
            _ => (&b"not one"[..], "malformed"),
        };
        std::fs::write(&path, bytes).unwrap();
        if reason == "unreadable" {
            chmod(&path, 0o0);
        }
        want.insert(name, reason);
    }
    let stop = AtomicBool::new(false);
    let rounds = AtomicUsize::new(0);
    let claims = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (n, path) in vanishing.iter().enumerate() {
                    std::fs::write(path, &held[..held.len() - n % 2]).unwrap();
                }
                for path in &vanishing {
                    std::fs::remove_file(path).unwrap();
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        for n in 0..3 {
            let (path, stop, claims) = (dir.file(&format!("busy{n}.lease")), &stop, &claims);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // A process that claims for itself, releases, and ends.
                    let script = "t=$(\"$0\" claim \"$1\" --owner $$) && \"$0\" release \"$1\" --token \"$t\"";
                    let done = clean("sh").args(["-c", script, LEASEHOLD]).arg(&path).output().unwrap();
                    assert!(done.status.success(), "{done:?}");
                    claims.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        eventually("they are at it", || {
            rounds.load(Ordering::Relaxed) > 0 && claims.load(Ordering::Relaxed) > 3
        });
        for _ in 0..3 {
            let answer = Answer::from(as_nobody(LEASEHOLD).arg("scan").arg(dir.path()).output().unwrap());
            assert_eq!(answer.code, 74, "some cannot be read: {}", answer.stderr);
            let mut seen = 0;
            for line in answer.verdicts() {
                let (name, verdict) = line.split_once(": ").unwrap();
                let reason = verdict.split_once(' ').unwrap().1;
                match want.get(name) {
                    Some(want) => {
                        assert_eq!(&reason, want, "{name}");
                        seen += 1;
                    }
                    // Whole, cut short, being written, or gone since it was listed.
                    None if name.starts_with('v') => {
                        assert!(
                            ["process-running", "torn", "empty", "no-record"].contains(&reason),
                            "{line}"
                        );
                    }
                    None => assert!(["process-running", "ended"].contains(&reason), "never dead: {line}"),
                }
            }
            assert_eq!(seen, want.len(), "every other file is listed, once");
        }
    });
}

/// Ends the other threads also when this one fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
