//! A shared directory with a record, and ways from one host to another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use leasehold::Record;
use serde_json::Value;

use super::support::host::Host;
use super::support::{Answer, LEASEHOLD, chmod, clean, edit, record, skip, snapshot};

/// The directory that hosts share, and beside it one that is the test's own.
pub struct Place {
    shared: tempfile::TempDir,
    own: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self {
            shared: tempfile::tempdir().unwrap(),
            own: tempfile::tempdir().unwrap(),
        }
    }

    pub fn dir(&self) -> &Path {
        self.shared.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn lease(&self) -> String {
        self.file("x.lease").to_str().unwrap().to_owned()
    }

    /// A file that is no part of what the hosts share.
    pub fn own(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    pub fn record(&self) -> Record {
        record(self.lease()).expect("a record")
    }

    /// Changes the owner line by hand.
    pub fn edit(&self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) {
        edit(self.lease(), change);
    }

    /// Makes the record one of a host that nobody here is.
    pub fn make_foreign(&self) {
        self.edit(|owner| {
            owner["host"] = "login-z".into();
            // A host need not have one.
            owner.insert("machine".into(), "fedcba9876543210fedcba9876543210".into());
            owner["boot"] = "11111111-2222-4333-8444-555555555555".into();
        });
    }

    /// A transport: a script that gets a host's name as `$1` and a command line as `$2`.
    pub fn script(&self, name: &str, body: &str) -> String {
        let path = self.own(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        chmod(&path, 0o755);
        format!("{} {{host}}", path.display())
    }

    /// A transport that runs the line on the host which has that name, as ssh would; what it was given goes to a log.
    pub fn transport(&self, hosts: &[&Host], names: &[&str]) -> String {
        let mut body = format!("printf '%s\\n' \"$2\" >> {}\ncase $1 in\n", self.own("log").display());
        for (name, host) in names.iter().zip(hosts) {
            body += &format!("{name}) exec {} -c \"$2\" ;;\n", entering(host));
        }
        body += "*) echo \"ssh: Could not resolve hostname $1: Name or service not known\" >&2; exit 255 ;;\nesac";
        self.script("transport", &body)
    }

    /// The lines that transports were given so far.
    pub fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.own("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Asks from the host that runs the tests. Nothing that is shared may be changed by it.
    #[track_caller]
    pub fn ask(&self, via: &str, options: &[&str]) -> Answer {
        self.ask_about(clean(LEASEHOLD), via, options, &[&self.lease()])
    }

    /// The same from another host.
    #[track_caller]
    pub fn ask_from(&self, host: &Host, via: &str, options: &[&str]) -> Answer {
        self.ask_about(host.command(LEASEHOLD), via, options, &[&self.lease()])
    }

    #[track_caller]
    pub fn ask_about(&self, mut command: Command, via: &str, options: &[&str], paths: &[&str]) -> Answer {
        let before = snapshot(self.dir());
        command.args(["ask", "--via", via, "--remote-command", LEASEHOLD]);
        command.args(options).arg("--").args(paths).current_dir(self.dir());
        let answer = command.output().unwrap().into();
        assert_eq!(snapshot(self.dir()), before, "asking changes nothing");
        answer
    }
}

/// The words of a shell command that runs a shell on a host.
pub fn entering(host: &Host) -> String {
    let command = host.command("sh");
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={} ", name.to_str()?, value?.to_str()?)));
    format!("env {}{}", set.collect::<String>(), words.join(" "))
}

/// Whether one host can run commands on another: inside user namespaces none can enter another's.
pub fn reaches(from: &Host, to: &Host) -> bool {
    let can = from.shell(&format!("{} -c true", entering(to))).code == 0;
    if !can {
        skip("no host can enter another one here");
    }
    can
}

pub fn leasehold(words: &[&str]) -> Answer {
    clean(LEASEHOLD).args(words).output().unwrap().into()
}
