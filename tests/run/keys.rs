//! Records that are named by a key.

use std::collections::HashMap;
use std::ffi::OsStr;

use leasehold::key::file_name;
use leasehold::names::{LONGEST_COMPANION, is_companion};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::scene::Scene;
use crate::support::Answer;

/// What a filesystem that folds case and normalises Unicode (as macOS does) makes of a name. All that a name may hold is
/// ASCII, which no normalisation form changes.
fn folded(name: &str) -> String {
    assert!(name.is_ascii(), "{name}");
    name.to_ascii_lowercase()
}

fn is_good(name: &str) {
    assert!(name.len() + LONGEST_COMPANION <= 255, "{} bytes: {name}", name.len());
    assert!(!is_companion(OsStr::new(name)) && !name.starts_with('.'), "{name}");
    assert!(!name.contains(['/', '\0', ' ', '\\', '"', '\'', '$']), "{name}");
    assert!(name.ends_with(".lease"));
}

/// Pieces that go wrong in one encoding or another, so that near misses are frequent.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("a".to_owned()),
        Just("A".to_owned()),
        Just("%".to_owned()),
        Just("%41".to_owned()),
        Just("%~".to_owned()),
        Just("41".to_owned()),
        Just(".".to_owned()),
        Just("/".to_owned()),
        Just("\u{e9}".to_owned()),
        Just("e\u{301}".to_owned()),
        Just("\u{df}".to_owned()),
        Just("\u{212a}".to_owned()),
        Just(".lease".to_owned()),
        Just(".t-0123456789abcdef0123456789abcdef".to_owned()),
        Just(".ballot-1".to_owned()),
        Just("x".repeat(190)),
        Just("x".repeat(120)),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn different_keys_have_different_names(keys in vec(vec(piece(), 0..5), 2..20)) {
        let mut seen: HashMap<String, String> = HashMap::new();
        for key in keys.into_iter().map(|pieces| pieces.concat()) {
            let name = file_name(&key);
            is_good(&name);
            if let Some(other) = seen.insert(folded(&name), key.clone()) {
                prop_assert_eq!(other, key, "{}", name);
            }
        }
    }
}

#[test]
fn near_misses_have_different_names() {
    let long = |end: &str| format!("{}{end}", "k".repeat(500));
    let keys = [
        "", "%", "a", "A", "K", "\u{212a}", "k", "\u{e9}", "e\u{301}", "\u{c9}", "a/b", "a%2fb", "a.b", ".a", "%2ea",
        "a ", " a", "a\n", "thread 1", "thread-1", "thread_1", "a.lease", ".", "..", "\0",
    ];
    let mut all: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    all.extend([
        long("1"),
        long("2"),
        "k".repeat(200),
        "k".repeat(201),
        "K".repeat(66),
        "K".repeat(67),
    ]);
    // One that looks like the name of a long one.
    all.push(file_name(&long("1")).trim_end_matches(".lease").to_owned());
    let mut names: Vec<String> = all.iter().map(|key| folded(&file_name(key))).collect();
    names.iter().for_each(|name| is_good(name));
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all.len());
}

#[test]
fn path_prints_what_run_uses() {
    let scene = Scene::new();
    for key in ["team/Name", "thread 0192", "-x", "\u{e9}", "", &"long".repeat(100)] {
        let ask = |words: &[&str], script: &[&str]| {
            let mut command = scene.leasehold("");
            command
                .args(words)
                .args(["--dir", "."])
                .arg(format!("--key={key}"))
                .args(script);
            Answer::from(command.output().unwrap()).ok()
        };
        let path = ask(&["path"], &[]);
        assert_eq!(path, format!("./{}", file_name(key)));
        let told = ask(&["run"], &["--", "sh", "-c", "echo \"$LEASEHOLD_PATH\""]);
        assert_eq!(told, scene.dir().join(file_name(key)).to_str().unwrap());
        assert!(scene.dir().join(&path).is_file());
    }
}

#[test]
fn a_record_is_named_in_one_way() {
    let scene = Scene::new();
    for (words, code) in [
        ("path", 64),
        ("path --dir .", 64),
        ("path --key x", 64),
        ("run --dir . -- true", 164),
        ("run --key x -- true", 164),
        ("run x.lease --dir . --key x -- true", 164),
        ("run -- true", 164),
        ("run x.lease", 164),
    ] {
        let answer = Answer::from(scene.leasehold(words).output().unwrap());
        assert_eq!(answer.code, code, "{words}: {answer:?}");
        assert!(
            answer.stdout.is_empty() && !answer.stderr.is_empty(),
            "{words}: {answer:?}"
        );
    }
    assert_eq!(std::fs::read_dir(scene.dir()).unwrap().count(), 0);
}
