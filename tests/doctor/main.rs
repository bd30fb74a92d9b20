//! The doctor: what it says of a host and a directory, and of two hosts that meet.
#![cfg(all(target_os = "linux", feature = "cli"))]

mod alone;
mod fuse;
mod lies;
mod meet;
#[path = "../support/mod.rs"]
mod support;

use serde_json::Value;

use support::Answer;

/// What the doctor said in JSON.
struct Said {
    code: i32,
    json: Value,
}

impl From<Answer> for Said {
    #[track_caller]
    fn from(answer: Answer) -> Self {
        Self {
            code: answer.code,
            json: answer.json(),
        }
    }
}

impl Said {
    /// A finding as `level: what`; `-` where there is none.
    fn of(&self, id: &str) -> String {
        let all = self.json["findings"].as_array().unwrap();
        let found = all.iter().find(|finding| finding["id"] == id);
        found.map_or("-".into(), |finding| {
            format!(
                "{}: {}",
                finding["level"].as_str().unwrap(),
                finding["what"].as_str().unwrap()
            )
        })
    }

    /// Everything that is more than a note.
    fn bad(&self) -> Vec<&str> {
        let all = self.json["findings"].as_array().unwrap();
        let bad = all
            .iter()
            .filter(|finding| !["ok", "note"].contains(&finding["level"].as_str().unwrap()));
        bad.map(|finding| finding["id"].as_str().unwrap()).collect()
    }
}
