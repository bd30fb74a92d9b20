//! `scripts/recipes/orphan-scan`, as docs/orphans.md tells people to use it.

use crate::records::*;
use crate::support::*;

fn recipe(words: &[&std::ffi::OsStr]) -> Answer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/recipes/orphan-scan");
    let mut command = clean("bash");
    command.arg(script).args(words).env("LEASEHOLD", LEASEHOLD);
    command.output().expect("bash starts").into()
}

#[test]
fn orphans_of_this_host_are_ended_and_those_of_others_keep_it_from_going_on() {
    let dir = Dir::new();
    let mut run: Vec<_> = (0..3).map(|_| Running::idle()).collect();
    let bridge = [("role", "bridge")];
    let a = dir.put("a.lease", &with(record_of(run[0].pid()), &bridge));
    dir.put("worker.lease", &with(record_of(run[1].pid()), &[("role", "worker")]));
    let mut died = Running::idle();
    let dead = dir.put("dead.lease", &with(record_of(died.pid()), &bridge));
    died.kill();
    let words = [dir.path().as_os_str(), "bridge".as_ref()];

    let answer = recipe(&words);
    assert_eq!((answer.code, answer.stderr.as_str()), (0, ""), "{answer:?}");
    assert_eq!(run[0].ended_by(), Some(15));
    assert!(run[1].runs(), "another role");
    assert!(read(&a).owner.ended.is_some() && read(&dead).owner.ended.is_some());

    let z = dir.put("z.lease", &with(foreign(run[2].pid()), &bridge));
    let answer = recipe(&words);
    assert_eq!(answer.code, 5, "{answer:?}");
    let ask = format!("ssh login-z leasehold judge {}", z.display());
    assert!(answer.stderr.contains(&ask), "{answer:?}");
    assert!(run[2].runs(), "a stranger under the foreign number");

    std::fs::remove_file(z).unwrap();
    let torn = dir.write("torn.lease", "{\"leasehold\":1,");
    let answer = recipe(&words);
    assert_eq!(answer.code, 5, "it may be of this role: {answer:?}");
    assert!(
        answer.stderr.contains("torn.lease is undetermined (torn)"),
        "{answer:?}"
    );
    std::fs::remove_file(torn).unwrap();
    assert_eq!(recipe(&words).code, 0);

    let nowhere = dir.file("nowhere");
    assert_eq!(recipe(&[nowhere.as_os_str(), "bridge".as_ref()]).code, 74);
    assert_eq!(recipe(&[nowhere.as_os_str()]).code, 64);
}
