//! Every change, over a filesystem that fails, or lies about what it did, at each call in turn.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::names::{self, TempId};
use leasehold::{Claim, Error, Holder, Judge, Pid, Reason, Record, Token};
use nix::errno::Errno;
use support::faulty::{Call, Counted, Fault, Faulty};

mod support;

/// More calls than any change makes.
const CALLS: usize = 100;

/// Cases that are tried at once: most of their time is waiting for the disk.
const AT_ONCE: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    ClaimAbsent,
    ClaimVacant,
    ClaimDead,
    Renew,
    Note,
    Release,
    HandOver,
}

const CHANGES: [Change; 7] = [
    Change::ClaimAbsent,
    Change::ClaimVacant,
    Change::ClaimDead,
    Change::Renew,
    Change::Note,
    Change::Release,
    Change::HandOver,
];

/// What NFS servers, quotas, permissions and broken disks answer. EINTR does not get through the trait.
const ERRNOS: [Errno; 9] = [
    Errno::EIO,
    Errno::ESTALE,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EROFS,
    Errno::EACCES,
    Errno::ETIMEDOUT,
    Errno::EMLINK,
    Errno::EOPNOTSUPP,
];

#[derive(Clone, Copy, Debug)]
struct Case {
    change: Change,
    fault: Fault,
    at: usize,
    lasting: bool,
    no_links: bool,
    no_symlinks: bool,
}

/// Every number of links that a filesystem may lack.
const LINKS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[test]
fn a_call_fails() {
    each(&ERRNOS.map(Fault::Fails), &[false], &[(false, false)]);
}

#[test]
fn a_call_fails_without_links() {
    each(&[Fault::Fails(Errno::EIO)], &[false], &LINKS[1..]);
}

#[test]
fn all_calls_fail_from_one_on() {
    each(
        &[Fault::Fails(Errno::EIO), Fault::Fails(Errno::ESTALE)],
        &[true],
        &LINKS,
    );
}

#[test]
fn a_call_is_made_and_its_answer_lost() {
    each(
        &[Fault::Denies(Errno::EIO), Fault::Denies(Errno::ETIMEDOUT)],
        &[false],
        &LINKS,
    );
}

#[test]
fn a_call_is_made_twice() {
    each(&[Fault::Twice, Fault::Repeated], &[false, true], &LINKS);
}

/// The call that matters was made, its answer was lost, and now nothing can be read: neither "done" nor "failed" is true.
#[test]
fn what_cannot_be_read_afterwards_is_uncertain() {
    for change in CHANGES {
        let plain = Arc::new(Faulty::new(None, 0, Counted::All));
        Scene::set(change)
            .act(here().with_fs(plain.clone()), change)
            .expect("a healthy filesystem");
        let decisive = match change {
            Change::ClaimAbsent => Call::Link,
            _ => Call::Rename,
        };
        let at = plain
            .made()
            .iter()
            .position(|call| *call == decisive)
            .expect("it is made")
            + 1;
        for answer in [Errno::EIO, Errno::ENOENT] {
            if (decisive, answer) == (Call::Link, Errno::ENOENT) {
                continue;
            }
            let scene = Scene::set(change);
            let mut fs = Faulty::new(Some(Fault::Denies(answer)), at, Counted::All);
            fs.blinding = true;
            let result = scene.act(here().with_fs(Arc::new(fs)), change);
            assert_ne!(support::record(&scene.path), scene.before, "{change:?}");
            assert!(
                matches!(result, Err(Error::Uncertain(_))),
                "{change:?} {answer}: {result:?}"
            );
        }
    }
}

/// An operator deletes the record just before the holder asks the server about it. Whatever the answer, a holder does
/// not recreate a record: it has lost, and what the question put there is vacant.
#[test]
fn a_holder_does_not_bring_back_a_deleted_record() {
    for (no_links, lost) in [
        (false, None),
        (false, Some(Errno::EIO)),
        (false, Some(Errno::EEXIST)),
        (true, None),
    ] {
        for change in [Change::Renew, Change::Note, Change::Release, Change::HandOver] {
            let scene = Scene::set(change);
            let plain = Arc::new(Faulty::new(None, 0, Counted::All));
            Scene::set(change)
                .act(here().with_fs(plain.clone()), change)
                .expect("a healthy filesystem");
            let at = plain
                .made()
                .iter()
                .position(|call| *call == Call::Link)
                .expect("it is made")
                + 1;
            let mut fs = Faulty::new(lost.map(Fault::Denies), at, Counted::All);
            fs.no_links = no_links;
            let (path, gone) = (scene.path.clone(), AtomicUsize::new(0));
            fs.meanwhile.0 = Box::new(move |call| {
                if call == Call::Link && gone.fetch_add(1, Ordering::SeqCst) == 0 {
                    std::fs::remove_file(&path).expect("the record was there");
                }
            });
            let result = scene.act(here().with_fs(Arc::new(fs)), change);
            assert!(
                matches!(result, Err(Error::Lost { .. })),
                "{change:?} {lost:?}: {result:?}"
            );
            let left = support::record(&scene.path);
            assert!(
                left.is_none_or(|left| left.owner.ended.is_some()),
                "{change:?} {lost:?}"
            );
        }
    }
}

fn each(faults: &[Fault], lasting: &[bool], links: &[(bool, bool)]) {
    let mut rows = Vec::new();
    for change in CHANGES {
        for fault in faults {
            for lasting in lasting {
                rows.extend(links.iter().map(|links| (change, *fault, *lasting, *links)));
            }
        }
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((change, fault, lasting, (no_links, no_symlinks))) =
                    rows.get(next.fetch_add(1, Ordering::SeqCst)).copied()
                {
                    let calls = (1..=CALLS).find(|at| {
                        let case = Case {
                            change,
                            fault,
                            at: *at,
                            lasting,
                            no_links,
                            no_symlinks,
                        };
                        !Scene::set(change).check(case)
                    });
                    assert!(calls.is_some_and(|calls| calls > 10), "{change:?}: {calls:?}");
                }
            });
        }
    });
}

/// A directory with a record as it is before a change, and files that are none of its business.
struct Scene {
    _dir: tempfile::TempDir,
    path: PathBuf,
    token: Option<Token>,
    before: Option<Record>,
    strangers: BTreeMap<PathBuf, Vec<u8>>,
}

impl Scene {
    fn set(change: Change) -> Self {
        let (dir, path) = support::directory();
        let beside = |name: &str| path.with_file_name(name);
        let longer = std::ffi::OsStr::new("x.lease.lease");
        let mut strangers = BTreeMap::new();
        for name in [
            beside("x"),
            beside("x.leas"),
            beside("x.lease.lease"),
            beside(".x.lease.t-0123"),
            beside(".x.lease.ballot-01"),
            path.with_file_name(names::temp(longer, TempId::new(0, 1, 1))),
            path.with_file_name(names::ballot(longer, 1)),
        ] {
            let bytes = name.as_os_str().as_encoded_bytes().to_vec();
            std::fs::write(&name, &bytes).expect("the directory takes files");
            strangers.insert(name, bytes);
        }
        let token = match change {
            Change::ClaimAbsent => None,
            Change::ClaimVacant => {
                let lease = Claim::new(&path).from(here()).take().expect("nobody holds it");
                lease.release(None).expect("it is held");
                None
            }
            Change::ClaimDead => {
                let lease = Claim::new(&path).from(here()).take().expect("nobody holds it");
                let mut record = support::record(&path).expect("a record");
                // This pid, but of a process that started earlier.
                record.owner.start = record.owner.start.map(|start| start - 1);
                record.owner.pidfd = None;
                std::fs::write(&path, record.print()).expect("the record can be written");
                lease.leave();
                None
            }
            _ => Some(
                Claim::new(&path)
                    .from(here())
                    .set("kept", "yes")
                    .take()
                    .expect("nobody holds it")
                    .leave(),
            ),
        };
        Self {
            _dir: dir,
            before: support::record(&path),
            path,
            token,
            strangers,
        }
    }

    fn act(&self, judge: Judge, change: Change) -> Result<(), Error> {
        let holder = self
            .token
            .map(|token| Holder::from(judge.clone(), &self.path, token).expect("a path of a record"));
        let holder = || holder.as_ref().expect("the test owns the record");
        match change {
            Change::ClaimAbsent | Change::ClaimVacant | Change::ClaimDead => {
                Claim::new(&self.path).from(judge).take().map(|lease| _ = lease.leave())
            }
            Change::Renew => holder().renew().map(drop),
            Change::Note => holder().note(&[("phase", "noted")]).map(drop),
            Change::Release => holder().release(None).map(drop),
            Change::HandOver => holder().hand_over(parent()).map(drop),
        }
    }

    /// Makes the change over the faulty filesystem and looks at everything. Whether the fault was met.
    fn check(self, case: Case) -> bool {
        let mut fs = Faulty::new(Some(case.fault), case.at, Counted::All);
        fs.unsynced = true;
        (fs.lasting, fs.no_links, fs.no_symlinks) = (case.lasting, case.no_links, case.no_symlinks);
        let fs = Arc::new(fs);
        let result = self.act(here().with_fs(fs.clone()), case.change);
        let made = fs.made();
        let at = made.get(case.at - 1).copied();
        let context = || {
            format!(
                "{case:?} at {at:?}: {result:?}\n{made:?}\n{:?}",
                support::names(self.dir())
            )
        };

        self.is_documented(case, at, &result, &context);
        // Without hard links an absent record is created empty first, and that is as good as none.
        let bytes = std::fs::read(&self.path)
            .ok()
            .filter(|bytes| !bytes.is_empty() || !case.no_links || self.before.is_some());
        let now = bytes
            .as_deref()
            .map(|bytes| Record::parse(bytes).unwrap_or_else(|flaw| panic!("{flaw}: {}", context())));
        let is_new = self.is_new(case.change, now.as_ref(), &context);
        match &result {
            Ok(()) => assert!(is_new, "said to be done: {}", context()),
            Err(Error::Uncertain(_)) => {}
            Err(_) => assert!(!is_new, "said to have failed: {}", context()),
        }
        for (name, bytes) in &self.strangers {
            assert_eq!(
                std::fs::read(name).ok().as_ref(),
                Some(bytes),
                "{}: {}",
                name.display(),
                context()
            );
        }
        if at == Some(Call::Create) && !case.lasting {
            let is_temp = |name: &String| names::parse_temp("x.lease".as_ref(), name.as_ref()).is_some();
            assert!(!support::names(self.dir()).iter().any(is_temp), "{}", context());
        }
        if !fs.reached() {
            // Nothing went wrong, and the owner lives: neither a leftover nor a second name of the record.
            assert_eq!(
                support::names(self.dir()).len(),
                self.strangers.len() + 1,
                "{}",
                context()
            );
            let links = std::fs::metadata(&self.path).expect("a record").nlink();
            assert_eq!(links, 1, "{}", context());
        }

        // The filesystem is well again.
        match (self.token, is_new) {
            (None, false) => {}
            (None, true) => self.release(now.expect("a new record").owner.token, &context),
            (Some(token), _) => {
                match (self.act(here(), case.change), case.change, is_new) {
                    (Ok(()), ..) => {}
                    (result, ..) => panic!("the holder tries again: {result:?}: {}", context()),
                }
                self.release(token, &context);
            }
        }
        let lease = Claim::new(&self.path)
            .take()
            .unwrap_or_else(|error| panic!("{error}: {}", context()));
        let before = self.before.as_ref().map_or(0, |before| before.owner.epoch);
        assert!(lease.epoch() > before, "{}", context());
        lease
            .release(None)
            .unwrap_or_else(|error| panic!("{error}: {}", context()));
        for (name, bytes) in &self.strangers {
            assert_eq!(
                std::fs::read(name).ok().as_ref(),
                Some(bytes),
                "{}: {}",
                name.display(),
                context()
            );
        }
        fs.reached()
    }

    fn release(&self, token: Token, context: &dyn Fn() -> String) {
        Holder::from(here(), &self.path, token)
            .and_then(|holder| holder.release(None))
            .unwrap_or_else(|error| panic!("the holder releases: {error}: {}", context()));
    }

    fn dir(&self) -> &Path {
        self.path.parent().expect("it lies in a directory")
    }

    /// Nobody else is there: the lease is neither refused for another reason than that it cannot be read, nor lost.
    fn is_documented(&self, case: Case, at: Option<Call>, result: &Result<(), Error>, context: &dyn Fn() -> String) {
        let documented = match result {
            Ok(()) | Err(Error::Io { .. } | Error::Uncertain(_)) => true,
            Err(Error::Refused(judgement)) => self.token.is_none() && judgement.reason == Reason::Unreadable,
            Err(Error::Unreadable { .. }) => self.token.is_some(),
            Err(_) => false,
        };
        assert!(documented, "{}", context());
        // A late duplicate does no harm at all, and neither does a lost answer to an exclusive call.
        if matches!(case.fault, Fault::Twice | Fault::Repeated) || at.is_none() {
            assert!(result.is_ok(), "{}", context());
        }
    }

    /// Whether the record is the new one; otherwise it is the old one, to the byte.
    fn is_new(&self, change: Change, now: Option<&Record>, context: &dyn Fn() -> String) -> bool {
        if now == self.before.as_ref() {
            return false;
        }
        let now = now.unwrap_or_else(|| panic!("the record is gone: {}", context()));
        let epoch = self.before.as_ref().map_or(0, |before| before.owner.epoch);
        let seq = self.before.as_ref().map_or(0, |before| before.owner.seq);
        assert!(now.owner.seq > seq, "{now:?}: {}", context());
        let mine = now.owner.pid == Pid::new(std::process::id().into());
        let whole = match (change, &self.before) {
            (Change::ClaimAbsent | Change::ClaimVacant | Change::ClaimDead, _) => {
                mine && now.owner.epoch == epoch + 1 && now.owner.ended.is_none()
            }
            (_, None) => false,
            (change, Some(before)) => {
                let kept = now.owner.token == before.owner.token
                    && now.owner.epoch == epoch
                    && now.state.get("kept") == Some("yes");
                kept && match change {
                    Change::Renew => mine && now.beat > before.beat && now.owner.ended.is_none(),
                    Change::Note => mine && now.state.get("phase") == Some("noted") && now.owner.ended.is_none(),
                    Change::Release => now.owner.ended.is_some(),
                    _ => now.owner.pid == Some(parent()) && now.owner.ended.is_none(),
                }
            }
        };
        assert!(whole, "{now:?}: {}", context());
        true
    }
}

/// From this process, which does not wait.
fn here() -> Judge {
    let mut fs = Faulty::new(None, 0, Counted::All);
    fs.unsynced = true;
    Judge::here()
        .with_fs(Arc::new(fs))
        .with_clock(Arc::new(support::Quick::default()))
}

fn parent() -> Pid {
    Pid::new(std::os::unix::process::parent_id().into()).expect("a parent in this namespace")
}
