//! How many RPCs a command cost, from the client's own books.

use std::collections::BTreeMap;
use std::fmt;

/// Calls by operation on one mount. NLM locks (v3) and the client's lease renewals are not in the kernel's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rpcs {
    pub calls: BTreeMap<String, u64>,
}

impl Rpcs {
    /// From the text of /proc/self/mountstats; nothing if `at` is not an NFS mount there.
    pub fn parse(text: &str, at: &str) -> Option<Self> {
        let mounted = format!(" mounted on {at} with fstype nfs");
        let mut lines = text.lines().skip_while(|l| !l.contains(&mounted)).skip(1).peekable();
        lines.peek()?;
        let mut calls = BTreeMap::new();
        let table = lines
            .take_while(|l| !l.starts_with("device "))
            .skip_while(|l| !l.contains("per-op statistics"));
        for line in table.skip(1) {
            if let Some((op, rest)) = line.trim().split_once(": ")
                && let Some(n) = rest.split(' ').next().and_then(|n| n.parse().ok())
            {
                calls.insert(op.to_owned(), n);
            }
        }
        Some(Self { calls })
    }

    pub fn since(&self, earlier: &Self) -> Self {
        let before = |op: &String| earlier.calls.get(op).copied().unwrap_or(0);
        let calls = self
            .calls
            .iter()
            .map(|(op, n)| (op.clone(), n.saturating_sub(before(op))));
        Self {
            calls: calls.filter(|(_, n)| *n > 0).collect(),
        }
    }

    pub fn of(&self, op: &str) -> u64 {
        self.calls.get(op).copied().unwrap_or(0)
    }

    pub fn total(&self) -> u64 {
        self.calls.values().sum()
    }
}

impl fmt::Display for Rpcs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} RPCs", self.total())?;
        self.calls.iter().try_for_each(|(op, n)| write!(f, " {op}:{n}"))
    }
}

#[test]
fn counts_only_the_mount_asked_for() {
    let text = "device proc mounted on /proc with fstype proc\n\
        device 10.0.0.1:/ mounted on /mnt/v4 with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.2\n\
        \tper-op statistics\n\
        \t        NULL: 1 1 0 44 24 0 0 0 0\n\
        \t        OPEN: 7 7 0 100 200 0 1 1 0\n\
        \n\
        device 10.0.0.1:/x mounted on /mnt/v4b with fstype nfs statvers=1.1\n\
        \tper-op statistics\n\
        \t        LOOKUP: 3 3 0 1 1 0 0 0 0\n";
    let v4 = Rpcs::parse(text, "/mnt/v4").expect("it is in the text");
    assert_eq!((v4.total(), v4.of("OPEN"), v4.of("LOOKUP")), (8, 7, 0));
    let later = Rpcs {
        calls: [("NULL".into(), 1), ("OPEN".into(), 9)].into(),
    };
    assert_eq!(later.since(&v4).calls, [("OPEN".to_owned(), 2)].into());
    assert_eq!(Rpcs::parse(text, "/mnt/v4b").map(|r| r.total()), Some(3));
    assert_eq!(Rpcs::parse(text, "/proc"), None);
}
