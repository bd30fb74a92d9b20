//! From what was found out about a host, a directory and the leases in it to what that means for its users. Pure.

use serde::Serialize;

use super::facts::{Clock, Facts, HostFacts, LeaseFacts, Place, Trial, Tried};
use crate::mount::{LockReach, Mount};
use crate::verdict::Verdict;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Good to know; nothing has to be done.
    Note,
    /// Verdicts are weak, or work is lost, in some cases.
    Warning,
    /// The directory cannot be used.
    Problem,
}

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// This host and this process's place on it.
    Host,
    /// The directory and its filesystem.
    Filesystem,
    /// The records in the directory.
    Leases,
    /// What hosts see of each other, found out when they meet.
    Meeting,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What it is about.
    pub area: Area,
    /// A word for it that stays the same.
    pub id: &'static str,
    /// What was found.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do; empty where nothing has to be done.
    #[serde(rename = "do", skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(level: Level, area: Area, id: &'static str, what: impl Into<String>) -> Self {
        Self {
            level,
            area,
            id,
            what: what.into(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// The worst of them; [`Level::Ok`] for none.
pub fn worst(findings: &[Finding]) -> Level {
    findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
}

/// What the facts mean.
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    host(&facts.host, &mut found);
    if let Some(place) = &facts.place {
        filesystem(place, &mut found);
    }
    if let Some(leases) = &facts.leases {
        records(leases, &facts.host, &mut found);
    }
    if let Some(hang) = &facts.hangs {
        let what = format!("{} has not answered for {:.0} s", hang.operation, hang.seconds);
        found.push(
            Finding::new(Level::Problem, Area::Filesystem, "hangs", what)
                .why("every call on this directory may hang; whatever came after this was not found out")
                .remedy("is its server up, and the network? see dmesg, and mount -v"),
        );
    }
    found
}

/// The inode of the initial time namespace on every Linux kernel.
const INITIAL_TIMENS: u64 = 4_026_531_834;

fn host(host: &HostFacts, found: &mut Vec<Finding>) {
    let finding = |level, id, what: String| Finding::new(level, Area::Host, id, what);
    let observer = &host.observer;
    let name = observer.host.as_deref().unwrap_or("no name");
    if host.weaknesses.is_empty() {
        let known = match &observer.host_id {
            Some(id) => format!("operator id {id} ({})", host.host_id_source.as_deref().unwrap_or("set")),
            None => "host name and machine id".to_owned(),
        };
        found.push(
            finding(Level::Ok, "identity", format!("{name}: boot id, {known}"))
                .why("by these records of this host are told from others', and known again after a reboot"),
        );
    }
    for weak in &host.weaknesses {
        let level = match weak.id {
            "foreign-proc" => Level::Problem,
            _ => Level::Warning,
        };
        found.push(
            finding(level, weak.id, weak.what.clone())
                .why(weak.why)
                .remedy(weak.remedy.clone()),
        );
    }
    if observer.host_id.is_some() && host.host_id_source.as_deref() == Some("environment") {
        found.push(
            finding(
                Level::Note,
                "host-id-environment",
                "the operator id comes from LEASEHOLD_HOST_ID".into(),
            )
            .why("set in a file of a shared home, every host has it, and all of them are taken for one")
            .remedy("set it where only this host or container reads it, or use /etc/leasehold/host-id"),
        );
    }
    if let (Some(on), None) = (&host.machine_id_on, &observer.host_id) {
        let remedy = "give this host an id of its own in /etc/leasehold/host-id, on a disk of its own";
        match on.as_str() {
            "tmpfs" | "ramfs" | "rootfs" => found.push(
                finding(Level::Warning, "machine-id-transient", format!("/etc/machine-id is in memory ({on})"))
                    .why("it is another one after a reboot, and this host's records stay undetermined then; or it is that of an image which other hosts run, too")
                    .remedy(remedy),
            ),
            "overlay" | "squashfs" | "erofs" | "nfs" | "nfs4" | "iso9660" => found.push(
                finding(Level::Note, "machine-id-image", format!("/etc/machine-id is on {on}: it may be an image's"))
                    .why("hosts that run from one image have one machine id; then the name alone tells them apart")
                    .remedy(format!("compare `leasehold id` on two of them; if `machine` is equal, {remedy}")),
            ),
            _ => {}
        }
    }
    if let (Some(written), Some(name)) = (&host.static_name, &observer.host)
        && written != name
    {
        found.push(
            finding(
                Level::Note,
                "host-name-changes",
                format!("the host name is {name}, and /etc/hostname says {written}"),
            )
            .why("after a reboot it may be another one; records of this boot are not known again then")
            .remedy("set it for good: hostnamectl set-hostname"),
        );
    }
    if observer.timens.is_some_and(|timens| timens != INITIAL_TIMENS) {
        found.push(
            finding(Level::Note, "time-namespace", "a time namespace of its own".into())
                .why("start times are shifted here: records of this machine's other time namespaces are undetermined")
                .remedy("judge records where they were written"),
        );
    }
    match (host.others_hidden, host.pidfs) {
        (true, false) => found.push(
            finding(
                Level::Warning,
                "hidepid",
                "/proc hides the processes of other users (hidepid)".into(),
            )
            .why("their start times cannot be read, so that their records are undetermined/start-unreadable here")
            .remedy("judge them as root or as their user; or Linux 6.9 or later, which has pidfs"),
        ),
        (true, true) => found.push(
            finding(
                Level::Note,
                "hidepid",
                "/proc hides the processes of other users (hidepid)".into(),
            )
            .why("their records are recognised by their inode in pidfs; those without one are undetermined here"),
        ),
        (false, true) => found.push(
            finding(
                Level::Ok,
                "processes",
                "start times and pidfs inodes can be read".into(),
            )
            .why("a process is told from a later one with its pid"),
        ),
        (false, false) => found.push(
            finding(
                Level::Ok,
                "processes",
                "start times can be read; no pidfs (Linux 6.9)".into(),
            )
            .why("a process is told from a later one with its pid by its start time, to 10 ms"),
        ),
    }
}

fn filesystem(place: &Place, found: &mut Vec<Finding>) {
    let finding = |level, id, what: String| Finding::new(level, Area::Filesystem, id, what);
    if let Some(why) = &place.unusable {
        found.push(
            finding(Level::Problem, "directory", why.clone())
                .why("no lease can be read or taken there")
                .remedy("name a directory that exists, and that this user may enter"),
        );
        return;
    }
    match &place.mount {
        Some(mount) => found.extend(of_mount(mount, place.locks)),
        None => found.push(
            finding(Level::Note, "mount", "the mount is not known here".into())
                .why("its type and options tell what a try from one host cannot"),
        ),
    }
    if let (Some(mode), Some(gid)) = (place.mode, place.gid) {
        let bits = format!("mode {mode:04o}");
        found.push(if mode & 0o002 == 0 {
            let group = if mode & 0o020 == 0 {
                String::new()
            } else {
                format!(": group {gid} may take, break and remove leases")
            };
            finding(Level::Ok, "permissions", bits + &group)
                .why("who may write here has authority over every lease in it")
        } else if mode & 0o1000 == 0 {
            finding(Level::Warning, "permissions", format!("{bits}: everybody may write"))
                .why("every user of every host may replace or remove any record, by mistake or not")
                .remedy("chmod o-w; for several users, a group and mode 2770")
        } else {
            finding(
                Level::Warning,
                "permissions",
                format!("{bits}: everybody may write, sticky"),
            )
            .why("nobody may remove another user's files: what one user's crashed claim leaves stops the others")
            .remedy("a directory for each user; or a group and mode 2770, without the sticky bit")
        });
    }
    if let Some(space) = &place.space {
        let files = space.files.map_or(String::new(), |files| format!(", {files} files"));
        let what = format!("{}{files} left", bytes(space.bytes));
        let short = space.bytes < 16 << 20 || space.files.is_some_and(|files| files < 1000);
        found.push(if short {
            finding(Level::Warning, "space", what)
                .why("a renewal needs a new file: on a full disk leases are lost")
                .remedy("make room")
        } else {
            finding(Level::Ok, "space", what).why("a renewal needs a new file")
        });
        let longest = space.longest_name;
        if longest < 255 {
            let room = longest.saturating_sub(crate::names::LONGEST_COMPANION as u64);
            found.push(
                finding(Level::Note, "name-length", format!("names of at most {longest} bytes")).why(format!(
                    "the name of a record may have {room} bytes here; files beside it need the rest"
                )),
            );
        }
    }
    if let Some(clock) = &place.clock {
        found.push(of_clock(clock));
    }
    tried(&place.trials, found);
}

/// What a trial is about: what is said when it works, what the result means, and how much it matters when the filesystem
/// does not have it, and when it does something else.
struct Meaning {
    trial: Trial,
    works: &'static str,
    fails: &'static str,
    missing: Level,
    wrong: Level,
    why: &'static str,
}

const MEANINGS: [Meaning; 13] = [
    Meaning {
        trial: Trial::Create,
        works: "exclusive create",
        fails: "exclusive create does not work",
        missing: Level::Problem,
        wrong: Level::Problem,
        why: "every change begins with a new file, which nobody else may have created",
    },
    Meaning {
        trial: Trial::Write,
        works: "sync",
        fails: "what is written cannot be read back",
        missing: Level::Problem,
        wrong: Level::Problem,
        why: "a record is complete or it is not published",
    },
    Meaning {
        trial: Trial::Link,
        works: "link",
        fails: "no hard links",
        missing: Level::Warning,
        wrong: Level::Problem,
        why: "a ballot is one, and a record that is being replaced has one: without them a ballot is a file of its own, in two steps, \
              a stale cache can mislead a claim, and a record that an NFS client puts aside is not found",
    },
    Meaning {
        trial: Trial::LinkCount,
        works: "link count",
        fails: "two names of a file look like two files",
        missing: Level::Note,
        wrong: Level::Warning,
        why: "a record keeps a second name while rivals may still be at work; here the next change does not see that",
    },
    Meaning {
        trial: Trial::Rename,
        works: "rename over an open file",
        fails: "rename does not replace a file",
        missing: Level::Problem,
        wrong: Level::Problem,
        why: "this is how a record is replaced",
    },
    Meaning {
        trial: Trial::AtomicRename,
        works: "atomic rename",
        fails: "while a file is replaced, its name is missing for a moment",
        missing: Level::Problem,
        wrong: Level::Problem,
        why: "its second name is looked for in that moment; where there are no hard links, a claim takes a lease that is held",
    },
    Meaning {
        trial: Trial::Inode,
        works: "inode numbers",
        fails: "a file's inode number changes",
        missing: Level::Warning,
        wrong: Level::Warning,
        why: "a heartbeat tells by it whether the record is still the file that it has open, and does not count otherwise",
    },
    Meaning {
        trial: Trial::Beat,
        works: "heartbeat in place",
        fails: "what an open file's owner overwrites is not read by name",
        missing: Level::Problem,
        wrong: Level::Problem,
        why: "others see by it that a lease is renewed, and would take it for lapsed",
    },
    Meaning {
        trial: Trial::Futimens,
        works: "futimens",
        fails: "the times of an open file cannot be set by its descriptor",
        missing: Level::Note,
        wrong: Level::Note,
        why: "leases do not need it: a heartbeat is written and synced",
    },
    Meaning {
        trial: Trial::Flock,
        works: "flock",
        fails: "flock does not exclude",
        missing: Level::Note,
        wrong: Level::Note,
        why: "leases do not rest on it; programs that use it here are not protected",
    },
    Meaning {
        trial: Trial::FcntlLock,
        works: "fcntl locks",
        fails: "fcntl locks do not exclude",
        missing: Level::Note,
        wrong: Level::Note,
        why: "leases do not rest on them; programs that use them here are not protected",
    },
    Meaning {
        trial: Trial::Getlk,
        works: "F_OFD_GETLK",
        fails: "F_OFD_GETLK does not tell of a lock",
        missing: Level::Note,
        wrong: Level::Note,
        why: "a file server is asked this way whether another host's owner still holds its lock",
    },
    Meaning {
        trial: Trial::LongName,
        works: "long names",
        fails: "a name as long as the filesystem allows cannot be created",
        missing: Level::Note,
        wrong: Level::Note,
        why: "files beside a record have longer names than itself",
    },
];

fn tried(trials: &[(Trial, Tried)], found: &mut Vec<Finding>) {
    let mut works = Vec::new();
    for meaning in &MEANINGS {
        let Some((_, tried)) = trials.iter().find(|(trial, _)| *trial == meaning.trial) else {
            continue;
        };
        let (level, detail) = match tried {
            Tried::Works => {
                works.push(meaning.works);
                continue;
            }
            Tried::Missing(detail) => (meaning.missing, detail),
            Tried::Wrong(detail) | Tried::Failed(detail) => (meaning.wrong, detail),
        };
        let remedy = match level {
            Level::Problem => "use another directory; docs/filesystems.md tells of filesystems and their options",
            Level::Warning => "prefer another filesystem, or `--meet` and look what two hosts see; docs/filesystems.md",
            _ => "",
        };
        found.push(
            Finding::new(
                level,
                Area::Filesystem,
                meaning.trial.id(),
                format!("{}: {detail}", meaning.fails),
            )
            .why(meaning.why)
            .remedy(remedy),
        );
    }
    if !works.is_empty() {
        found.push(
            Finding::new(
                Level::Ok,
                Area::Filesystem,
                "tried",
                format!("works: {}", works.join(", ")),
            )
            .why("tried here, from this host alone; between hosts, `doctor DIR --meet CODE` on two of them"),
        );
    }
}

/// Beyond this, judgements that compare a stamp with this host's boot go wrong.
pub(super) const FAR: f64 = 300.0;

fn of_clock(clock: &Clock) -> Finding {
    let far = clock.offset.abs();
    let what = format!(
        "files are stamped by a clock {}",
        ahead(clock.offset, clock.uncertainty)
    );
    let finding = |level| Finding::new(level, Area::Filesystem, "clock", what);
    let why = "no lease ends by a comparison of clocks; only whether a record is from before this boot is told by one";
    if far > FAR {
        finding(Level::Warning)
            .why(why)
            .remedy("set this host's clock, or the file server's: ntp, chrony")
    } else if far > 2.0 {
        finding(Level::Note).why(why)
    } else {
        finding(Level::Ok).why(why)
    }
}

/// How far another clock is from this host's.
pub(super) fn ahead(offset: f64, uncertainty: f64) -> String {
    let side = if offset < 0.0 { "behind" } else { "ahead of" };
    format!("{:.2} s {side} this host's (± {uncertainty:.2} s)", offset.abs())
}

pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0} {}", UNITS[unit])
}

/// The type of a mount and its options, in plain words.
pub(super) fn describe(mount: &Mount, locks: LockReach) -> String {
    let reach = match locks {
        LockReach::Local => "locks and files are of this host alone",
        LockReach::Nfs4 | LockReach::Nfs3 => "the server keeps locks",
        LockReach::Cluster => "the cluster keeps locks",
        LockReach::NotShared => "locks stay on this host",
        LockReach::Unknown => "whether locks reach other hosts is not known",
    };
    let mut words = Vec::new();
    match mount.kind.as_str() {
        "nfs" | "nfs4" => {
            let version = mount.value("vers").or(mount.value("nfsvers"));
            words.push(format!("NFS {}", version.unwrap_or("of unknown version")));
            let failing = ["soft", "softerr"].into_iter().find(|word| mount.has(word));
            words.push(failing.unwrap_or("hard").to_owned());
            words.push(if mount.has("noac") {
                "no attribute cache".into()
            } else {
                let times = ["actimeo", "acregmin", "acregmax", "acdirmin", "acdirmax"];
                let set: Vec<String> = times
                    .into_iter()
                    .filter_map(|name| Some(format!("{name}={}", mount.value(name)?)))
                    .collect();
                match set.is_empty() {
                    true => "attributes cached for 3 to 60 s".into(),
                    false => format!("attributes cached: {}", set.join(" ")),
                }
            });
            words.extend(mount.has("nocto").then(|| "nocto".into()));
            words.extend(mount.value("lookupcache").map(|mode| format!("lookupcache={mode}")));
        }
        "fuse.sshfs" => words.push("sshfs".into()),
        "lustre" => words.push("Lustre".into()),
        "gpfs" => words.push("GPFS (Storage Scale)".into()),
        "beegfs" => words.push("BeeGFS".into()),
        "cifs" | "smb3" => {
            words.push(format!("SMB {}", mount.value("vers").unwrap_or("of unknown version")));
            words.push(format!("cache={}", mount.value("cache").unwrap_or("strict")));
        }
        "9p" => {
            words.push("9p".into());
            words.push(format!("cache={}", mount.value("cache").unwrap_or("none")));
        }
        kind => words.push(kind.to_owned()),
    }
    words.push(reach.to_owned());
    words.join(", ")
}

/// What a mount's type and options say. Only what one host cannot try.
fn of_mount(mount: &Mount, locks: LockReach) -> Vec<Finding> {
    let finding = |level, id, what: &str| Finding::new(level, Area::Filesystem, id, what);
    let what = format!("{} at {}: {}", mount.source, mount.target, describe(mount, locks));
    let mut found = vec![
        finding(Level::Ok, "mount", &what)
            .why("what hosts see of each other's files depends on it; see docs/filesystems.md"),
    ];
    let nfs = matches!(mount.kind.as_str(), "nfs" | "nfs4");
    if nfs && (mount.has("soft") || mount.has("softerr")) {
        found.push(
            finding(Level::Warning, "nfs-soft", "mounted soft")
                .why("when the server is slow, calls fail instead of waiting, and a holder loses its lease; writes can be lost")
                .remedy("mount with `hard`; see nfs(5)"),
        );
    }
    match locks {
        LockReach::NotShared => found.push(
            finding(Level::Note, "locks", "locks are not seen by other hosts")
                .why("leases do not need them; but no server can attest that another host's owner still runs")
                .remedy(match mount.kind.as_str() {
                    "lustre" => "mount with `flock` (mount.lustre(8)), if you want that",
                    "cifs" | "smb3" => "mount without `nobrl` (mount.cifs(8)), if you want that",
                    _ => "mount with local_lock=none, and without nolock (nfs(5)), if you want that",
                }),
        ),
        LockReach::Nfs3 => found.push(
            finding(
                Level::Note,
                "locks",
                "NFSv3: a crashed host's locks stay until it is back",
            )
            .why("leases do not need them; what the server says of a lock decides nothing here")
            .remedy("mount with vers=4.2, if you want held/server-attested"),
        ),
        LockReach::Unknown => found.push(
            finding(Level::Note, "locks", "whether locks reach other hosts is not known")
                .why("leases do not need them, and none is kept here")
                .remedy("`doctor DIR --meet CODE` on two hosts tells"),
        ),
        LockReach::Local | LockReach::Nfs4 | LockReach::Cluster => {}
    }
    let remedy = "`doctor DIR --meet CODE` on two hosts shows what they see of each other, and after how long";
    match mount.kind.as_str() {
        "fuse.sshfs" => found.push(
            finding(Level::Warning, "client-cache", "sshfs keeps names and attributes in a cache of its own")
                .why("it does not ask the server when a fresh look is wanted: another host's claim or renewal is seen late")
                .remedy("mount with -o dcache_timeout=0,dir_cache=no (sshfs(1)), or use the filesystem itself"),
        ),
        "9p" if !matches!(mount.value("cache"), None | Some("none" | "0x0" | "0")) => found.push(
            finding(Level::Warning, "client-cache", "9p with a cache")
                .why("it is not kept coherent with the server: another host's changes may never be seen")
                .remedy("mount with cache=none"),
        ),
        "cifs" | "smb3" if mount.value("cache") == Some("loose") => found.push(
            finding(Level::Warning, "client-cache", "SMB with cache=loose")
                .why("another host's changes are seen late, and writes of two hosts can mix")
                .remedy("mount with cache=strict (mount.cifs(8))"),
        ),
        "overlay" => found.push(
            finding(Level::Note, "overlay", "an overlay: what is written goes to its upper layer")
                .why("other hosts and containers do not see it, even where a layer below is shared")
                .remedy("for leases between them, mount the shared directory itself"),
        ),
        "tmpfs" | "ramfs" => found.push(
            finding(Level::Note, "in-memory", "files here are gone after a reboot")
                .why("epochs start again at 1 then, and outcomes that were noted are forgotten"),
        ),
        "beegfs" => found.push(
            finding(Level::Note, "beegfs-locks", "BeeGFS")
                .why("with tuneUseGlobalFileLocks = false, its default, locks are kept by each client alone")
                .remedy(remedy),
        ),
        "afs" => found.push(
            finding(Level::Warning, "client-cache", "AFS")
                .why("what is written reaches the server when the file is closed: a heartbeat of an open record is seen late")
                .remedy(remedy),
        ),
        kind if kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.") || kind == "virtiofs" => found.push(
            finding(Level::Note, "fuse", &format!("a program answers for it ({kind})"))
                .why("what it caches, and which calls are atomic between hosts, is its own affair")
                .remedy(remedy),
        ),
        _ => {}
    }
    found
}

fn records(leases: &LeaseFacts, host: &HostFacts, found: &mut Vec<Finding>) {
    let finding = |level, id, what: String| Finding::new(level, Area::Leases, id, what);
    if let Some(why) = leases.failures.first() {
        found.push(
            finding(Level::Problem, "unreadable", why.clone())
                .why("records that cannot be read are neither held nor free")
                .remedy("run this as a user that may read them; see dmesg for I/O errors"),
        );
    }
    let counts: Vec<String> = leases
        .counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    let total: usize = leases.counts.iter().map(|(_, count)| count).sum();
    let what = match (total, counts.join(", ")) {
        (0, _) => "no records".to_owned(),
        (1, counts) => format!("1 record: {counts}"),
        (_, counts) => format!("{total} records: {counts}"),
    };
    let count = |verdict: Verdict| {
        let of = leases.counts.iter().find(|(known, _)| *known == verdict);
        of.map_or(0, |(_, count)| *count)
    };
    let remedy = match (count(Verdict::Undetermined), count(Verdict::Dead)) {
        (0, 0) => "",
        (0, _) => "`leasehold settle DIR` vacates what was this host's and is dead",
        _ => "`leasehold scan DIR --ask` asks the owners' hosts",
    };
    let level = if remedy.is_empty() { Level::Ok } else { Level::Note };
    found.push(
        finding(level, "records", what)
            .why("`leasehold scan DIR` lists them")
            .remedy(remedy),
    );
    if leases.newer > 0 {
        found.push(
            finding(
                Level::Warning,
                "newer-format",
                format!("{} of a later format", leases.newer),
            )
            .why("they are undetermined for this version, and it never takes them")
            .remedy("update leasehold here; `leasehold --version` on the hosts that write them"),
        );
    }
    if leases.broken > 0 {
        found.push(
            finding(
                Level::Warning,
                "broken-records",
                format!("{} cut short, malformed or empty", leases.broken),
            )
            .why("nobody can tell who holds them, and they are never taken")
            .remedy("`leasehold scan DIR`, then docs/undetermined.md"),
        );
    }
    if leases.in_doubt > 0 {
        found.push(
            finding(
                Level::Note,
                "in-doubt",
                format!("{} with an action in doubt", leases.in_doubt),
            )
            .why("their owner ended without an outcome: it may have happened")
            .remedy("look whether it did, then claim with --accept-in-doubt"),
        );
    }
    if !leases.twins.is_empty() {
        found.push(
            finding(
                Level::Warning,
                "cloned-machine-id",
                format!("this host's machine id is also that of {}", leases.twins.join(", ")),
            )
            .why("they are cloned, or run from one image (or this host was renamed): should their names meet too, one is taken for the other")
            .remedy("give each host an id of its own in /etc/leasehold/host-id"),
        );
    }
    if !leases.boot_twins.is_empty() {
        found.push(
            finding(
                Level::Warning,
                "boot-id-repeats",
                format!("this host's boot id is also that of {}", leases.boot_twins.join(", ")),
            )
            .why("another machine has booted with it: their records are undetermined/identity-conflict here")
            .remedy("seed the kernel's random generator before the boot id is read; see random(4)"),
        );
    }
    if let Some(former) = leases.former_names.first() {
        found.push(
            finding(
                Level::Note,
                "host-renamed",
                format!(
                    "this host was {former} when it wrote some of the records, and is {} now",
                    host.observer.host.as_deref().unwrap_or("nameless")
                ),
            )
            .why("after a reboot they are not known again as this host's")
            .remedy("keep a host's name, or give it an operator id"),
        );
    }
    let left = leases.temp_files + leases.ballots;
    if left > 0 {
        found.push(
            finding(
                Level::Note,
                "leftovers",
                format!(
                    "{} temp files, {} ballots or second names",
                    leases.temp_files, leases.ballots
                ),
            )
            .why("of changes under way, or of crashed ones; a crash blocks nobody")
            .remedy("nothing: claims of the same lease remove what was left, some of it after an hour"),
        );
    }
    if leases.kept > 0 {
        found.push(
            finding(Level::Ok, "broken-by-operators", format!("{} kept", leases.kept))
                .why("each says who decided, and why; remove them when nobody needs that any more"),
        );
    }
    if leases.swept > 0 {
        found.push(
            finding(
                Level::Ok,
                "swept",
                format!("{} files of earlier doctors removed", leases.swept),
            )
            .why("they were killed before they could"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The findings about a mount with this type and these options, as `level id`, and its description.
    fn of(kind: &str, options: &str) -> (String, Vec<String>) {
        let line = format!("36 25 0:41 / /home rw,relatime shared:1 - {kind} server:/home rw,{options}");
        let mount = Mount::parse(&line).expect("a mountinfo line");
        let words = |finding: &Finding| format!("{:?} {}", finding.level, finding.id);
        let findings = of_mount(&mount, mount.lock_reach());
        for finding in findings.iter().filter(|finding| finding.level > Level::Ok) {
            assert!(!finding.why.is_empty(), "{finding:?}");
        }
        let rest = findings.iter().filter(|finding| finding.level > Level::Ok).map(words);
        (describe(&mount, mount.lock_reach()), rest.collect())
    }

    #[test]
    fn types_and_options_are_told_in_plain_words() {
        let cases: [(&str, &str, &str, &[&str]); 24] = [
            (
                "nfs4",
                "vers=4.2,hard,local_lock=none",
                "NFS 4.2, hard, attributes cached for 3 to 60 s, the server keeps locks",
                &[],
            ),
            (
                "nfs4",
                "vers=4.1,soft,noac,local_lock=none",
                "NFS 4.1, soft, no attribute cache, the server keeps locks",
                &["Warning nfs-soft"],
            ),
            (
                "nfs",
                "vers=4.2,softerr,local_lock=none",
                "NFS 4.2, softerr, attributes cached for 3 to 60 s, the server keeps locks",
                &["Warning nfs-soft"],
            ),
            (
                "nfs",
                "vers=3,hard,nocto,acregmin=60,acdirmax=90,local_lock=none",
                "NFS 3, hard, attributes cached: acregmin=60 acdirmax=90, nocto, the server keeps locks",
                &["Note locks"],
            ),
            (
                "nfs",
                "vers=3,nolock,hard,local_lock=all",
                "NFS 3, hard, attributes cached for 3 to 60 s, locks stay on this host",
                &["Note locks"],
            ),
            (
                "nfs",
                "vers=3,hard,lookupcache=none,local_lock=flock",
                "NFS 3, hard, attributes cached for 3 to 60 s, lookupcache=none, locks stay on this host",
                &["Note locks"],
            ),
            ("lustre", "flock,lazystatfs", "Lustre, the cluster keeps locks", &[]),
            (
                "lustre",
                "localflock",
                "Lustre, locks stay on this host",
                &["Note locks"],
            ),
            ("lustre", "", "Lustre, locks stay on this host", &["Note locks"]),
            ("gpfs", "", "GPFS (Storage Scale), the cluster keeps locks", &[]),
            (
                "beegfs",
                "cfgFile=/etc/beegfs/beegfs-client.conf",
                "BeeGFS, whether locks reach other hosts is not known",
                &["Note locks", "Note beegfs-locks"],
            ),
            (
                "cifs",
                "vers=3.1.1,cache=strict,serverino",
                "SMB 3.1.1, cache=strict, whether locks reach other hosts is not known",
                &["Note locks"],
            ),
            (
                "cifs",
                "vers=3.0,cache=loose,nobrl",
                "SMB 3.0, cache=loose, locks stay on this host",
                &["Note locks", "Warning client-cache"],
            ),
            (
                "fuse.sshfs",
                "user_id=1000,group_id=1000",
                "sshfs, whether locks reach other hosts is not known",
                &["Note locks", "Warning client-cache"],
            ),
            (
                "fuse.glusterfs",
                "user_id=0",
                "fuse.glusterfs, whether locks reach other hosts is not known",
                &["Note locks", "Note fuse"],
            ),
            (
                "virtiofs",
                "",
                "virtiofs, whether locks reach other hosts is not known",
                &["Note locks", "Note fuse"],
            ),
            (
                "9p",
                "trans=virtio,cache=none",
                "9p, cache=none, whether locks reach other hosts is not known",
                &["Note locks"],
            ),
            (
                "9p",
                "trans=virtio",
                "9p, cache=none, whether locks reach other hosts is not known",
                &["Note locks"],
            ),
            (
                "9p",
                "trans=virtio,cache=loose",
                "9p, cache=loose, whether locks reach other hosts is not known",
                &["Note locks", "Warning client-cache"],
            ),
            (
                "9p",
                "trans=virtio,cache=f",
                "9p, cache=f, whether locks reach other hosts is not known",
                &["Note locks", "Warning client-cache"],
            ),
            (
                "overlay",
                "lowerdir=/l,upperdir=/u,workdir=/w",
                "overlay, locks and files are of this host alone",
                &["Note overlay"],
            ),
            (
                "tmpfs",
                "size=64k",
                "tmpfs, locks and files are of this host alone",
                &["Note in-memory"],
            ),
            ("ext4", "", "ext4, locks and files are of this host alone", &[]),
            (
                "afs",
                "dyn",
                "afs, whether locks reach other hosts is not known",
                &["Note locks", "Warning client-cache"],
            ),
        ];
        for (kind, options, words, findings) in cases {
            let (said, found) = of(kind, options);
            assert_eq!(
                (said.as_str(), found),
                (words, findings.iter().map(ToString::to_string).collect()),
                "{kind} {options}"
            );
        }
    }

    #[test]
    fn clocks_matter_when_they_are_far_apart() {
        for (offset, level) in [
            (0.1, Level::Ok),
            (-1.9, Level::Ok),
            (2.5, Level::Note),
            (-299.0, Level::Note),
            (3600.0, Level::Warning),
        ] {
            let clock = Clock {
                offset,
                uncertainty: 0.01,
                step: 1e-9,
            };
            let found = of_clock(&clock);
            assert_eq!(
                (found.level, found.what.contains("behind")),
                (level, offset < 0.0),
                "{found:?}"
            );
        }
    }

    #[test]
    fn every_trial_has_a_meaning() {
        let all = [
            Trial::Create,
            Trial::Write,
            Trial::Link,
            Trial::LinkCount,
            Trial::Rename,
            Trial::AtomicRename,
            Trial::Inode,
            Trial::Beat,
            Trial::Futimens,
            Trial::Flock,
            Trial::FcntlLock,
            Trial::Getlk,
            Trial::LongName,
        ];
        assert_eq!(all.len(), MEANINGS.len());
        for trial in all {
            let mut found = Vec::new();
            tried(&[(trial, Tried::Wrong("so".into()))], &mut found);
            assert!(
                found.len() == 1 && found[0].id == trial.id() && found[0].level > Level::Ok,
                "{found:?}"
            );
        }
    }
}
