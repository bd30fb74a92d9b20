//! scripts/sample-launcher/demo plays to its end: it checks each of its steps.

use crate::support::host::possible;
use crate::support::{Answer, LEASEHOLD, clean};

fn demo(leasehold: &str) -> (Answer, usize) {
    let temp = tempfile::tempdir().unwrap();
    let mut demo = clean(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/sample-launcher/demo"));
    demo.env("LEASEHOLD_BIN", leasehold).env("TMPDIR", temp.path());
    let answer = demo.output().unwrap().into();
    (answer, std::fs::read_dir(temp.path()).unwrap().count())
}

#[test]
fn before_does_the_harm_and_after_does_not() {
    if !possible() {
        return;
    }
    let (answer, left) = demo(LEASEHOLD);
    assert_eq!((answer.code, left), (0, 0), "{answer:?}");
    let titles = answer.stdout.lines().filter(|line| line.starts_with("== "));
    let of = |part: &str| titles.clone().filter(|line| line[3..].starts_with(part)).count();
    assert_eq!((of("BEFORE"), of("AFTER"), of("MIXED")), (3, 4, 2), "{}", answer.stdout);
    assert_eq!(answer.stdout.lines().last(), Some("== All as expected"));
}

#[test]
fn a_leasehold_that_says_yes_to_everything_fails_it() {
    if !possible() {
        return;
    }
    let (answer, left) = demo("/bin/true");
    assert_eq!((answer.code, left), (1, 0), "{answer:?}");
    assert!(answer.stderr.contains("NOT AS EXPECTED"), "{answer:?}");
    assert!(answer.stdout.contains("== AFTER"), "before needs none: {answer:?}");
}
