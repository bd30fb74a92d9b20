//! The shape that the crate keeps: pure modules do no I/O, and whatever is unsafe or differs between systems sits in
//! `platform`.

use std::path::{Path, PathBuf};

const PURE: [&str; 18] = [
    "advice",
    "ballot",
    "deadline",
    "doctor/findings",
    "doctor/meeting",
    "facts",
    "keeping",
    "key",
    "lapse",
    "legacy",
    "mount",
    "names",
    "owner",
    "record",
    "run_state",
    "testimony",
    "token",
    "verdict",
];

const IMPURE: [&str; 16] = [
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "rustix::",
    "nix::",
    "crate::platform",
    "crate::fs",
    "crate::observe",
    "crate::change",
    "crate::clock",
    "crate::identity",
];

fn source(path: &Path) -> String {
    std::fs::read_to_string(path).expect("a source file")
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn pure_modules_do_no_io() {
    for module in PURE {
        let text = source(&src().join(module).with_extension("rs"));
        for word in IMPURE {
            assert!(!text.contains(word), "src/{module}.rs uses {word}");
        }
    }
}

#[test]
fn whatever_is_unsafe_sits_in_platform() {
    let mut dirs = vec![src()];
    let mut files = 0;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("a source directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true if path.ends_with("platform") => {}
                true => dirs.push(path),
                false => {
                    files += 1;
                    let text = source(&path);
                    assert!(
                        !text.contains("unsafe {") && !text.contains("unsafe fn"),
                        "{}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(files > 30, "the sources were found");
}
