//! `leasehold ask`, with a script in place of ssh.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::place::{Place, leasehold, reaches};
use super::support::host::{Host, claim, initial, possible};
use super::support::{Answer, LEASEHOLD, Running, clean, eventually, stat, verdict};

const MACHINE: &str = "0123456789abcdef0123456789abcdef";

/// An answer that was not believed, or none: undetermined as before, and why is said, to a person and in JSON.
#[track_caller]
fn in_vain(answer: &Answer, why: &str) {
    assert_eq!(verdict(answer), "undetermined/foreign-host", "{answer:?}");
    assert!(answer.stderr.contains("asked in vain"), "{answer:?}");
    assert!(answer.stderr.contains(why), "no `{why}`: {answer:?}");
    assert!(
        answer.stderr.lines().count() == 1 && answer.stderr.len() < 2000,
        "{answer:?}"
    );
}

#[test]
fn the_owners_host_tells() {
    if !possible() || !initial() {
        return;
    }
    let place = Place::new();
    let mut a = Host::named("login-a").start();
    let b = Host::named("login-b").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    if !reaches(&b, &a) {
        return;
    }
    let names = ["login-a", "login-b"];
    let via = place.transport(&[&a, &b], &names);
    let told = place.ask_from(&b, &via, &[]);
    assert_eq!((verdict(&told).as_str(), told.stderr.as_str()), ("held/asked", ""));
    let json = place.ask_from(&b, &via, &["--json"]).json();
    assert_eq!(
        (&json["verdict"], &json["reason"], &json["liveness"], &json["authority"]),
        (&"held".into(), &"asked".into(), &"running".into(), &"owner".into())
    );
    assert!(json["sentence"].as_str().unwrap().contains("process-running"), "{json}");
    assert_eq!(json["observer"]["host"], "login-b");

    bridge.kill();
    assert_eq!(verdict(&place.ask_from(&b, &via, &[])), "dead/asked");
    let json = place.ask_from(&b, &via, &["--json"]).json();
    assert_eq!(
        json["next"],
        format!(
            "let its host say so in the record: ssh login-a leasehold settle {}",
            place.lease()
        )
    );
    // What was heard is no permission: the record is as it was, and is not taken from here.
    let own = b.spawn();
    let refused = b.leasehold(&format!("claim {} --owner {}", place.lease(), own.pid));
    assert_eq!(refused.code, 2, "{refused:?}");

    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    drop(bridge);
    a.reboot();
    let via = place.transport(&[&a, &b], &names);
    let json = place.ask_from(&b, &via, &["--json"]).json();
    assert_eq!(
        (&json["verdict"], &json["reason"]),
        (&"dead".into(), &"asked".into()),
        "{json}"
    );
    assert!(json["sentence"].as_str().unwrap().contains("host-rebooted"), "{json}");
}

#[test]
fn who_can_tell_asks_nobody() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    let via = place.transport(&[&a], &["login-a"]);
    assert_eq!(verdict(&place.ask_from(&a, &via, &[])), "free/no-record");
    claim(&a, &place.lease(), bridge.pid);
    assert_eq!(verdict(&place.ask_from(&a, &via, &[])), "held/process-running");
    bridge.kill();
    assert_eq!(verdict(&place.ask_from(&a, &via, &[])), "dead/no-such-process");
    fs::write(place.lease(), "4242\n").unwrap();
    assert_eq!(verdict(&place.ask(&via, &[])), "undetermined/no-host");
    assert_eq!(place.asked(), [""; 0]);
}

#[test]
fn only_the_owners_host_is_believed() {
    if !possible() || !initial() {
        return;
    }
    let place = Place::new();
    // Up before the record was written: what it sees there is no trace of an earlier boot of its own.
    let young = Host::named("login-a").machine(MACHINE).start();
    let old = Host::named("login-a").machine(MACHINE).up_for(86_400).start();
    let a = Host::named("login-a").machine(MACHINE).start();
    let c = Host::named("login-c").start();
    let inside = Host::named("login-a")
        .machine(MACHINE)
        .boot(a.boot_id())
        .pid_namespace(true)
        .start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    assert_eq!(
        verdict(&place.ask(&place.transport(&[&a], &["login-a"]), &[])),
        "held/asked"
    );
    let twin = young.leasehold(&format!("judge {}", place.lease()));
    assert_eq!(
        verdict(&twin),
        "dead/host-rebooted",
        "a single look of a twin that booted just now"
    );
    for (host, why) in [
        (&c, "it belongs to another host"),
        (&old, "two live hosts seem to have the same identity"),
        (&young, "two live hosts seem to have the same identity"),
        (&inside, "another pid namespace"),
    ] {
        in_vain(&place.ask(&place.transport(&[host], &["login-a"]), &[]), why);
        bridge.signal("STOP");
        in_vain(&place.ask(&place.transport(&[host], &["login-a"]), &[]), why);
        bridge.signal("CONT");
    }
    // A dead one is not dead for them either.
    bridge.kill();
    in_vain(&place.ask(&place.transport(&[&c], &["login-a"]), &[]), "another host");
    assert_eq!(
        verdict(&place.ask(&place.transport(&[&a], &["login-a"]), &[])),
        "dead/asked"
    );
}

#[test]
fn what_changed_meanwhile_counts() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let lease = place.lease();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    let token = claim(&a, &lease, bridge.pid);
    let enter = super::place::entering(&a);
    let ask = |via: &str| -> Answer {
        clean(LEASEHOLD)
            .args(["ask", &lease, "--remote-command", LEASEHOLD, "--via", via])
            .output()
            .unwrap()
            .into()
    };
    // Its holder notes something just before it is judged there.
    let via = place.script(
        "notes",
        &format!("{enter} -c '{LEASEHOLD} note {lease} --token {token} phase=on'\nexec {enter} -c \"$2\""),
    );
    assert_eq!(verdict(&ask(&via)), "held/asked");
    // … and just after: the answer is about a state that is no more.
    let via = place.script(
        "notes-after",
        &format!("{enter} -c \"$2\"\n{enter} -c '{LEASEHOLD} note {lease} --token {token} phase=off'"),
    );
    in_vain(&ask(&via), "another claim");
    bridge.kill();
    // A beat that moves under an owner that is said to be dead.
    let via = place.script(
        "beats",
        &format!("{enter} -c \"$2\"\nsed -i 's/\"beat\":\"0/\"beat\":\"1/' {lease}"),
    );
    in_vain(&ask(&via), "renewed meanwhile");
    assert_eq!(verdict(&ask(&place.transport(&[&a], &["login-a"]))), "dead/asked");
    let via = place.script(
        "releases",
        &format!("{enter} -c '{LEASEHOLD} release {lease} --token {token}'\nexec {enter} -c \"$2\""),
    );
    assert_eq!(verdict(&ask(&via)), "free/ended");
}

#[test]
fn a_lying_transport_changes_nothing() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let (bridge, other) = (a.spawn(), a.spawn());
    claim(&a, &place.lease(), bridge.pid);
    let beside = place.file("y.lease").to_str().unwrap().to_owned();
    claim(&a, &beside, other.pid);
    other.kill();
    let enter = super::place::entering(&a);
    let lease = place.lease();
    for (name, body, why) in [
        ("silent", "exit 0".to_owned(), "there was no answer"),
        (
            "failing",
            "echo 'no route to host' >&2; exit 255".into(),
            "no route to host",
        ),
        ("garbage", "head -c 5000 /dev/urandom".into(), "no judgement"),
        ("polite", "echo Welcome; echo".into(), "no judgement"),
        ("huge", "head -c 4000000 /dev/zero | tr '\\0' x".into(), "too long"),
        ("endless", "exec yes '{\"path\":'".into(), "too long"),
        ("number", "echo 1".into(), "no judgement"),
        ("deep", "head -c 90000 /dev/zero | tr '\\0' '['".into(), "no judgement"),
        (
            "wrong types",
            format!("echo '{{\"path\":\"{lease}\",\"verdict\":1,\"reason\":[],\"owner\":{{}},\"observer\":null}}'"),
            "no judgement",
        ),
        (
            "word",
            format!("echo '{{\"path\":\"{lease}\",\"verdict\":\"dead\"}}'"),
            "no judgement",
        ),
        (
            "bare word",
            format!(
                "echo '{{\"path\":\"{lease}\",\"verdict\":\"dead\",\"reason\":\"no-such-process\",\"owner\":{{}},\
                 \"observer\":{{}}}}'"
            ),
            "another claim",
        ),
        (
            "another record",
            format!("exec {enter} -c '{LEASEHOLD} judge --json {beside}'"),
            "another path",
        ),
        (
            "another record by this name",
            format!("{enter} -c '{LEASEHOLD} judge --json {beside}' | sed 's#{beside}#{lease}#g'"),
            "another claim",
        ),
        (
            "a free one",
            format!(
                "{enter} -c '{LEASEHOLD} judge --json {lease}' | sed 's/\"held\"/\"free\"/;s/process-running/ended/'"
            ),
            "free/ended",
        ),
    ] {
        let via = place.script("liar", &body);
        in_vain(&place.ask(&via, &["--timeout", "20s"]), why);
        let json = place.ask(&via, &["--timeout", "20s", "--json"]).json();
        assert_eq!(json["verdict"], "undetermined", "{name}");
        assert!(json["sentence"].as_str().unwrap().contains(why), "{name}: {json}");
    }
    // A login script's greeting does not hide an honest answer.
    let via = place.script("chatty", &format!("echo 'Last login: today'\nexec {enter} -c \"$2\""));
    assert_eq!(verdict(&place.ask(&via, &[])), "held/asked");
}

#[test]
fn a_transport_that_cannot_be_run_says_so() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    in_vain(
        &place.ask("/nonexistent/ssh {host}", &[]),
        "cannot run /nonexistent/ssh",
    );
    let via = place.transport(&[], &[]);
    in_vain(&place.ask(&via, &[]), "Could not resolve hostname login-a");
    for (options, what) in [
        (["--via", ""], "names no command"),
        (["--via", "ssh 'x"], "missing closing quote"),
        (["--map", "x"], "/here=/there"),
        (["--map", "a=b"], "/here=/there"),
        (["--timeout", "soon"], "90s"),
    ] {
        let told = leasehold(&[&["ask", &place.lease()], &options[..]].concat());
        assert_eq!(told.code, 64, "{told:?}");
        assert!(told.stderr.contains(what), "{what}: {told:?}");
    }
}

/// Whether a process of this number runs; it may be a zombie for whoever has to reap it.
fn runs(pid: &str) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

#[test]
fn a_transport_that_hangs_is_ended_with_all_it_started() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    let pids = place.own("pids");
    let via = place.script(
        "hangs",
        &format!(
            "sleep 1000 & echo $! $$ > {0}.new; mv {0}.new {0}; trap '' TERM HUP INT; wait",
            pids.display()
        ),
    );
    let began = Instant::now();
    in_vain(&place.ask(&via, &["--timeout", "300ms"]), "no answer within 300ms");
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(300) && took < Duration::from_secs(20),
        "{took:?}"
    );
    let left = fs::read_to_string(&pids).unwrap_or_default();
    for pid in left.split_whitespace() {
        eventually("the transport has ended", || !runs(pid));
    }

    // The question is given up, as by ^C or by a supervisor: the transport, which has a group of its own, ends too.
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let _ = fs::remove_file(&pids);
        let words = ["ask", &place.lease(), "--timeout", "1000s", "--via", &via];
        let mut asking = Running::start(clean(LEASEHOLD).args(words));
        eventually("the transport runs", || pids.exists());
        asking.signal(signal);
        assert_eq!(asking.ended_by(), Some(signal as i32));
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            eventually("the transport has ended", || !runs(pid));
        }
    }

    // It answers, but something that it left in the background keeps its output open.
    let enter = super::place::entering(&a);
    let via = place.script("lingers", &format!("sleep 1000 2>&1 &\nexec {enter} -c \"$2\""));
    in_vain(&place.ask(&via, &["--timeout", "2s"]), "no answer within 2s");
    let via = place.script("lingers", &format!("sleep 1000 >/dev/null &\nexec {enter} -c \"$2\""));
    assert_eq!(verdict(&place.ask(&via, &["--timeout", "60s"])), "held/asked");
}

#[test]
fn a_host_name_never_becomes_an_option_or_a_command() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    let touched = place.own("touched");
    let via = format!("sh -c 'touch {}; : {{host}}' sh", touched.display());
    let long = "a b".repeat(100);
    for name in [
        "-oProxyCommand=touch x",
        "-v",
        "$(touch x)",
        "`touch x`",
        "a b",
        "a;b",
        "a\nb",
        "a\tb",
        "a'b",
        "a\"b",
        "a|b",
        "a/b",
        "user@host",
        ".hidden",
        "{host}",
        "höst",
        "a\u{0}b",
        &long,
    ] {
        place.edit(|owner| owner["host"] = name.into());
        let told = place.ask(&via, &[]);
        in_vain(&told, "host name");
        assert!(!touched.exists(), "{name}");
        assert!(
            !told.stderr.contains("$(touch") && !told.stdout.contains('\u{0}'),
            "{told:?}"
        );
        let next = place.ask(&via, &["--json"]).json();
        assert_eq!(
            next["next"],
            format!("ask its host: leasehold ask {}", place.lease()),
            "{name}"
        );
    }
    place.edit(|owner| owner["host"] = "login-a.example.org".into());
    place.ask(&via, &[]);
    assert!(touched.exists(), "a plain name is handed over");
}

#[test]
fn any_path_can_be_asked_about() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    let via = place.transport(&[&a], &["login-a"]);
    for name in [
        "a b",
        "it's",
        "a\"b",
        "a\nb",
        "$(touch x)",
        "-x",
        "a\\b",
        "*",
        "ä",
        "a;b",
        "#a",
        "~",
        "a\tb",
    ] {
        let path = place.file(name).to_str().unwrap().to_owned();
        claim(&a, &path, bridge.pid);
        let told = place.ask_about(clean(LEASEHOLD), &via, &["--json"], &[name]);
        let json = told.json();
        assert_eq!((&json["reason"], told.code), (&"asked".into(), 0), "{name:?}: {json}");
    }
    assert!(!place.file("x").exists());

    let odd = place.dir().join(std::ffi::OsString::from_vec(b"a\xffb".to_vec()));
    fs::rename(place.file("a b"), &odd).unwrap();
    let before = place.asked().len();
    let told: Answer = clean(LEASEHOLD)
        .args(["ask", "--via", &via])
        .arg(&odd)
        .output()
        .unwrap()
        .into();
    in_vain(&told, "no UTF-8");
    assert!(told.stdout.ends_with("a\\xffb\n"), "{told:?}");
    assert_eq!(place.asked().len(), before, "nobody was asked");
}

#[test]
fn a_directory_may_have_another_name_there() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    let there = place.own("there");
    fs::create_dir(&there).unwrap();
    a.run(&[
        "mount",
        "--bind",
        place.dir().to_str().unwrap(),
        there.to_str().unwrap(),
    ])
    .ok();
    let via = place.transport(&[&a], &["login-a"]);
    let (here, there) = (place.dir().display().to_string(), there.display().to_string());
    for (maps, expected) in [
        (vec![format!("{here}={there}")], format!("{there}/x.lease")),
        (vec![format!("{here}/={there}/")], format!("{there}/x.lease")),
        (
            vec![format!("/nowhere=/x"), format!("{here}={there}")],
            format!("{there}/x.lease"),
        ),
        (
            vec![format!("{}={there}/x.lease", place.lease())],
            format!("{there}/x.lease"),
        ),
        // Part of a name is not a directory.
        (vec![format!("{}=/elsewhere", &here[..here.len() - 1])], place.lease()),
        (vec![], place.lease()),
    ] {
        let mut options = Vec::new();
        for map in &maps {
            options.extend(["--map", map]);
        }
        assert_eq!(verdict(&place.ask(&via, &options)), "held/asked", "{maps:?}");
        assert_eq!(
            place.asked().last().unwrap(),
            &format!("{LEASEHOLD} judge --json -- {expected}"),
            "{maps:?}"
        );
    }
    let told = place.ask(&via, &["--map", &format!("{here}=/elsewhere")]);
    in_vain(&told, "another claim");
    // The far command may have words of its own.
    let told: Answer = clean(LEASEHOLD)
        .args(["ask", &place.lease(), "--via", &via])
        .args(["--remote-command", &format!("env A=b '{LEASEHOLD}'")])
        .output()
        .unwrap()
        .into();
    assert_eq!(verdict(&told), "held/asked");
    let told: Answer = clean(LEASEHOLD)
        .args([
            "ask",
            &place.lease(),
            "--via",
            &via,
            "--remote-command",
            "/nonexistent/leasehold",
        ])
        .output()
        .unwrap()
        .into();
    in_vain(&told, "not found");
}

#[test]
fn each_host_is_asked_once() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let hosts = ["login-a", "login-b"].map(|name| Host::named(name).start());
    let via = place.transport(&[&hosts[0], &hosts[1]], &["login-a", "login-b"]);
    let owners = hosts.each_ref().map(Host::spawn);
    let mut names: Vec<String> = Vec::new();
    for number in 0..6 {
        let at = number % 2;
        names.push(format!("{number} it's.lease"));
        claim(&hosts[at], place.file(&names[number]).to_str().unwrap(), owners[at].pid);
    }
    names.push("absent".into());
    names.push("gone.lease".into());
    let gone = Host::named("login-z").start();
    claim(&gone, place.file("gone.lease").to_str().unwrap(), gone.spawn().pid);
    let [a, _b] = owners;
    a.kill();
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    let told = place.ask_about(clean(LEASEHOLD), &via, &[], &paths);
    assert_eq!(told.code, 0, "{told:?}");
    let found: Vec<(&str, &str)> = told
        .stdout
        .lines()
        .map(|line| (line.split('\t').next().unwrap(), line.rsplit('\t').next().unwrap()))
        .collect();
    let expected = ["dead", "held", "dead", "held", "dead", "held", "free", "undetermined"];
    assert_eq!(
        found,
        expected.into_iter().zip(paths.iter().copied()).collect::<Vec<_>>()
    );
    assert!(
        told.stderr.contains("gone.lease") && told.stderr.lines().count() == 1,
        "{told:?}"
    );
    let asked = place.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(asked[0].matches("lease'").count(), 3, "{asked:?}");
}

/// A scan asks them too: what is told there is filtered and counted by what the hosts say.
#[test]
fn a_scan_asks_each_host_once() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let hosts = ["login-a", "login-b"].map(|name| Host::named(name).start());
    let via = place.transport(&[&hosts[0], &hosts[1]], &["login-a", "login-b"]);
    let owners = hosts.each_ref().map(Host::spawn);
    for number in 0..4 {
        let path = place.file(&format!("{number}.lease"));
        claim(&hosts[number % 2], path.to_str().unwrap(), owners[number % 2].pid);
    }
    let [a, _b] = owners;
    a.kill();
    let mut scan = clean(LEASEHOLD);
    scan.arg("scan")
        .arg(place.dir())
        .args(["--ask", "--only", "dead", "--via", &via, "--remote-command", LEASEHOLD]);
    let told = Answer::from(scan.output().unwrap());
    assert_eq!(told.code, 0, "{told:?}");
    let found: Vec<Vec<&str>> = told
        .stdout
        .lines()
        .map(|line| line.split('\t').take(3).collect())
        .collect();
    assert_eq!(
        found,
        [["dead", "asked", "login-a"], ["dead", "asked", "login-a"]],
        "{told:?}"
    );
    assert!(told.stderr.contains("2 dead"), "{told:?}");
    assert_eq!(place.asked().len(), 2);
}

/// More names than a command line has room for are asked about in several.
#[test]
fn many_records_take_few_calls() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let a = Host::named("login-a").start();
    let bridge = a.spawn();
    claim(&a, &place.lease(), bridge.pid);
    let deep = place.file(&"d".repeat(200)).join("e".repeat(200));
    fs::create_dir_all(&deep).unwrap();
    let paths: Vec<String> = (0..400)
        .map(|number| deep.join(format!("{number}.lease")).to_str().unwrap().to_owned())
        .collect();
    for path in &paths {
        fs::copy(place.lease(), path).unwrap();
    }
    let via = place.transport(&[&a], &["login-a"]);
    let told = place.ask_about(
        clean(LEASEHOLD),
        &via,
        &[],
        &paths.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert_eq!(told.stdout.matches("held\tasked\t").count(), 400);
    let calls = place.asked().len();
    assert!((2..=12).contains(&calls), "{calls} calls");
}
