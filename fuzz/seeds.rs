//! What the fuzz targets begin with: made of the cases of `tests/data`, and of this host's /proc.
//!
//! `cargo run --example fuzz_seeds fuzz/corpus`

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

const CASES: [&str; 2] = [
    include_str!("../tests/data/public-reports.json"),
    include_str!("../tests/data/further.json"),
];

/// One of each family of other programs.
const LEGACY: [&str; 8] = [
    "4242\n",
    "      4242\n",
    "4242\nlogin-a\n",
    "login-a:4242",
    "root@login-a.4242:1700000000",
    "login-a-4242",
    "login-a/f0000000:4242",
    r#"{"pid":4242,"hostname":"login-a","created":"2026-01-02T03:04:05Z"}"#,
];

const KEYS: [&str; 5] = [
    "",
    "thread-0192f3|Thread-0192f3",
    "team/Name|team%2fName",
    "..|.",
    "é\0",
];

struct Corpus(PathBuf);

impl Corpus {
    fn put(&self, target: &str, number: usize, bytes: impl AsRef<[u8]>) {
        let dir = self.0.join(target);
        fs::create_dir_all(&dir).expect("the corpus can be made");
        fs::write(dir.join(format!("seed-{number}")), bytes).expect("a seed can be written");
    }
}

fn main() {
    let corpus = Corpus(std::env::args_os().nth(1).expect("name a directory").into());
    let cases = CASES
        .iter()
        .flat_map(|text| serde_json::from_str::<Vec<Value>>(text).expect("cases"));
    for (number, case) in cases.enumerate() {
        let facts = &case["facts"];
        corpus.put("facts", number, facts.to_string());
        let answer = serde_json::json!({
            "path": "/x", "verdict": case["want"]["verdict"], "reason": case["want"]["reason"],
            "owner": facts["record"], "observer": facts["observer"]
        });
        corpus.put("testimony", number, answer.to_string());
        if let Some(line) = owner_line(facts) {
            corpus.put("owner", number, &line);
            let record = format!("{line}\n{{\"intent\":\"x\"}}\n{{\"beat\":\"0000000000000042\"}}\n");
            corpus.put("record", number, record);
        }
    }
    for (number, text) in LEGACY.iter().enumerate() {
        corpus.put("legacy", number, text);
    }
    for (number, key) in KEYS.iter().enumerate() {
        corpus.put("key", number, key);
    }
    corpus.put("names", 0, "x.lease/.x.lease.ballot-1");
    corpus.put("names", 1, "x.lease/.x.lease.t-00000000000000010000000100000001");
    for (target, file) in [("mountinfo", "/proc/self/mountinfo"), ("stat", "/proc/self/stat")] {
        corpus.put(target, 0, fs::read(Path::new(file)).expect("/proc"));
    }
}

/// The record of a case, as it would stand in a file.
fn owner_line(facts: &Value) -> Option<String> {
    let record = facts["record"]
        .as_object()
        .filter(|record| record.contains_key("pid"))?;
    let mut line = Map::new();
    line.insert("leasehold".into(), 1.into());
    for (key, value) in [("token", "0".repeat(32).into()), ("epoch", 1.into()), ("seq", 1.into())] {
        line.insert(key.into(), record.get(key).cloned().unwrap_or(value));
    }
    let known = |key: &str| !["state", "detail", "legacy", "intent", "outcome"].contains(&key);
    line.extend(
        record
            .iter()
            .filter(|(key, _)| known(key))
            .map(|(key, value)| (key.clone(), value.clone())),
    );
    Some(Value::from(line).to_string())
}
