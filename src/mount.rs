//! What a mount's advisory locks are worth. Pure: parses the text of mountinfo.

use serde::Serialize;

/// How far a lock on a file of a mount reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockReach {
    /// The file is of this host alone, and so are its locks.
    Local,
    /// The server keeps them, in the way of NFSv4 (a lock of a crashed client ends with its NFS lease).
    Nfs4,
    /// The server keeps them, in the way of NFSv3 (a lock of a crashed client stays until that client comes back).
    Nfs3,
    /// The cluster's lock manager keeps them.
    Cluster,
    /// Other hosts see the file, but not the lock.
    NotShared,
    /// Not known.
    Unknown,
}

impl LockReach {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Nfs4 => "nfs4",
            Self::Nfs3 => "nfs3",
            Self::Cluster => "cluster",
            Self::NotShared => "not-shared",
            Self::Unknown => "unknown",
        }
    }

    /// Whether a server or lock manager can be asked for locks of other hosts.
    pub const fn can_be_asked(self) -> bool {
        matches!(self, Self::Nfs4 | Self::Nfs3 | Self::Cluster)
    }

    /// Whether a lock here is seen by every host that sees the file.
    pub const fn is_seen_by_all(self) -> bool {
        matches!(self, Self::Local | Self::Nfs4 | Self::Nfs3 | Self::Cluster)
    }
}

/// One line of `/proc/self/mountinfo`, proc_pid_mountinfo(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number of the device, as `st_dev` has them.
    pub device: (u32, u32),
    /// Where it is mounted, unescaped.
    pub target: String,
    /// The filesystem's type.
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// The mount's own options, then the filesystem's.
    pub options: Vec<String>,
}

impl Mount {
    /// A line; `None` for one of another form.
    pub fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut left = before.split(' ').skip(2);
        let (major, minor) = left.next()?.split_once(':')?;
        let target = unescape(left.nth(1)?);
        let own = left.next()?;
        let mut right = after.split(' ');
        let (kind, source) = (right.next()?.to_owned(), unescape(right.next()?));
        let options = own.split(',').chain(right.next().unwrap_or_default().split(','));
        Some(Self {
            device: (major.parse().ok()?, minor.parse().ok()?),
            target,
            kind,
            source,
            options: options.filter(|option| !option.is_empty()).map(str::to_owned).collect(),
        })
    }

    /// How far its locks reach, by nfs(5), mount.cifs(8) and the Lustre manual.
    pub fn lock_reach(&self) -> LockReach {
        let has = |name: &str| self.options.iter().any(|option| option == name);
        let value = |name: &str| {
            self.options
                .iter()
                .find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
        };
        match self.kind.as_str() {
            "nfs" | "nfs4" => {
                if has("nolock") || matches!(value("local_lock"), Some("all" | "flock")) {
                    return LockReach::NotShared;
                }
                match value("vers").or_else(|| value("nfsvers")) {
                    Some(version) if version.starts_with('4') => LockReach::Nfs4,
                    Some(_) => LockReach::Nfs3,
                    None if self.kind == "nfs4" => LockReach::Nfs4,
                    None => LockReach::Unknown,
                }
            }
            "lustre" if has("flock") => LockReach::Cluster,
            "lustre" => LockReach::NotShared,
            "gfs2" | "ocfs2" | "gpfs" | "ceph" => LockReach::Cluster,
            "cifs" | "smb3" if has("nobrl") || has("nolock") => LockReach::NotShared,
            kind if kind == "cifs" || kind == "smb3" || kind == "9p" || kind.starts_with("fuse") => LockReach::Unknown,
            _ => LockReach::Local,
        }
    }
}

/// The mount of a device, among the lines of a mountinfo; the last one, which hides those before it.
pub fn find(mountinfo: &str, device: (u32, u32)) -> Option<Mount> {
    mountinfo
        .lines()
        .filter_map(Mount::parse)
        .rfind(|mount| mount.device == device)
}

/// Space, tab, newline and backslash stand as three octal digits.
fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = bytes.get(at + 1..at + 4).filter(|_| bytes[at] == b'\\');
        let code = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        out.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 4 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(kind: &str, options: &str) -> LockReach {
        let line = format!("36 25 0:41 / /home rw,relatime shared:1 - {kind} server:/home rw,{options}");
        Mount::parse(&line).expect("a mountinfo line").lock_reach()
    }

    #[test]
    fn reads_a_line() {
        let line =
            r"36 25 0:41 /sub /mnt/a\040b rw,noatime shared:1 master:2 - nfs4 s:/x\011y rw,vers=4.2,local_lock=none";
        let mount = Mount::parse(line).expect("a mountinfo line");
        assert_eq!(
            (mount.device, mount.target.as_str(), mount.source.as_str()),
            ((0, 41), "/mnt/a b", "s:/x\ty")
        );
        assert_eq!(mount.options, ["rw", "noatime", "rw", "vers=4.2", "local_lock=none"]);
        for odd in [
            "",
            " - ",
            "36 25 0:41 / /home rw",
            "36 25 x:y / /h rw - nfs s rw",
            r"1 2 0:1 / \04 rw - a b c",
        ] {
            let _ = Mount::parse(odd);
        }
        assert_eq!(
            find(&format!("{line}\n{line} \n"), (0, 41)).map(|mount| mount.kind),
            Some("nfs4".into())
        );
        assert_eq!(find(line, (0, 42)), None);
    }

    #[test]
    fn a_promise_is_made_only_where_all_hosts_see_the_lock() {
        let cases = [
            ("nfs4", "vers=4.2,hard,local_lock=none", LockReach::Nfs4),
            ("nfs", "vers=3,local_lock=none", LockReach::Nfs3),
            ("nfs", "vers=3,nolock,local_lock=all", LockReach::NotShared),
            ("nfs", "vers=3,local_lock=flock", LockReach::NotShared),
            ("nfs4", "vers=4.0,local_lock=posix", LockReach::Nfs4),
            ("lustre", "flock", LockReach::Cluster),
            ("lustre", "localflock", LockReach::NotShared),
            ("lustre", "", LockReach::NotShared),
            ("cifs", "nobrl", LockReach::NotShared),
            ("cifs", "", LockReach::Unknown),
            ("fuse.sshfs", "", LockReach::Unknown),
            ("9p", "", LockReach::Unknown),
            ("ext4", "", LockReach::Local),
            ("tmpfs", "", LockReach::Local),
        ];
        for (kind, options, expected) in cases {
            assert_eq!(reach(kind, options), expected, "{kind} {options}");
            let promised = matches!(expected, LockReach::Unknown | LockReach::NotShared);
            assert_eq!(expected.is_seen_by_all(), !promised);
        }
    }
}
