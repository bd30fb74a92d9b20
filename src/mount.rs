//! What a mount's advisory locks are worth. Pure: parses the text of mountinfo.

use serde::Serialize;

/// How far a lock on a file of a mount reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
    #[default]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// The mount's number, as statx(2) gives it.
    #[serde(skip)]
    pub id: u64,
    /// Major and minor number of the device, as `st_dev` has them.
    #[serde(skip)]
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
        let mut left = before.split(' ');
        let id = left.next()?.parse().ok()?;
        let mut left = left.skip(1);
        let (major, minor) = left.next()?.split_once(':')?;
        let target = unescape(left.nth(1)?);
        let own = left.next()?;
        let mut right = after.split(' ');
        let (kind, source) = (right.next()?.to_owned(), unescape(right.next()?));
        let options = own.split(',').chain(right.next().unwrap_or_default().split(','));
        Some(Self {
            id,
            device: (major.parse().ok()?, minor.parse().ok()?),
            target,
            kind,
            source,
            options: options.filter(|option| !option.is_empty()).map(str::to_owned).collect(),
        })
    }

    /// Whether it has this option, which has no value.
    pub fn has(&self, name: &str) -> bool {
        self.options.iter().any(|option| option == name)
    }

    /// The value of an option.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// How far its locks reach, by nfs(5), mount.cifs(8) and the Lustre manual.
    pub fn lock_reach(&self) -> LockReach {
        let (has, value) = (|name| self.has(name), |name| self.value(name));
        match self.kind.as_str() {
            "nfs" | "nfs4" => {
                // With posix alone a flock reaches the server, but the question, which is one of POSIX locks, does not.
                if has("nolock") || value("local_lock").is_some_and(|local| local != "none") {
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
            kind if LOCAL.contains(&kind) => LockReach::Local,
            // CIFS, FUSE, virtiofs, 9p, AFS, BeeGFS and others: as their servers are set up.
            _ => LockReach::Unknown,
        }
    }
}

/// Filesystems of one host. An overlay belongs here too, whatever lies below: what is written goes to its upper layer.
const LOCAL: [&str; 17] = [
    "bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3", "overlay", "ramfs",
    "reiserfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// How far locks reach on a device, among the lines of a mountinfo.
///
/// A device may be mounted at several places, as by bind mounts. Options of locking belong to its superblock, so that
/// all its lines agree, and no path needs to be compared; should they not, nothing is known.
pub fn lock_reach(mountinfo: &str, device: (u32, u32)) -> LockReach {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    let mut reaches = mounts
        .filter(|mount| mount.device == device)
        .map(|mount| mount.lock_reach());
    match reaches.next() {
        Some(first) if reaches.all(|other| other == first) => first,
        _ => LockReach::Unknown,
    }
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
    }

    /// As kernels print it on hosts that have a little of everything.
    const MOUNTS: &str = r"22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
28 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
70 28 0:55 / /home rw,relatime shared:40 - autofs systemd-1 rw,fd=62,pgrp=1,timeout=0,minproto=5,maxproto=5,direct
71 70 0:56 / /home rw,relatime shared:41 - nfs4 filer:/export/home rw,vers=4.2,rsize=1048576,hard,proto=tcp,local_lock=none,addr=10.0.0.2
72 28 0:56 /alice /srv/a b rw,nosuid,relatime shared:41 - nfs4 filer:/export/home rw,vers=4.2,hard,local_lock=none,addr=10.0.0.2
73 28 0:57 / /old rw,relatime - nfs filer:/export/old rw,vers=3,nolock,hard,proto=tcp,mountproto=tcp,local_lock=all,addr=10.0.0.2
74 28 0:58 / /v3 rw,relatime - nfs filer:/export/v3 rw,vers=3,hard,mountvers=3,mountproto=tcp,local_lock=none,addr=10.0.0.2
75 28 0:59 / /scratch rw,noatime shared:50 - lustre 10.1.0.1@o2ib:10.1.0.2@o2ib:/scratch rw,checksum,flock,user_xattr,lruresize
76 28 0:60 / /work rw,noatime shared:51 - lustre 10.1.0.1@o2ib:/work rw,checksum,localflock,lazystatfs
77 28 0:61 / /gpfs/fs1 rw,relatime shared:52 - gpfs fs1 rw
78 28 0:62 / /mnt/beegfs rw,relatime shared:53 - beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf,_netdev
79 28 0:63 / /mnt/win rw,relatime - cifs //srv/share rw,vers=3.1.1,cache=strict,username=a,uid=0,soft,nounix,serverino,mapposix
80 28 0:64 / /mnt/nobrl rw,relatime - cifs //srv/share2 rw,vers=3.1.1,username=a,nobrl
81 28 0:65 / /mnt/s rw,nosuid,nodev,relatime - fuse.sshfs alice@login-a:/home rw,user_id=1000,group_id=1000
82 28 0:66 / /shared rw,relatime - virtiofs shared0 rw
83 28 0:67 / /var/lib/docker/overlay2/x/merged rw,relatime - overlay overlay rw,lowerdir=/home/l,upperdir=/u,workdir=/w
84 28 0:68 / /afs rw,relatime - afs none rw,dyn
85 28 0:69 / /mnt/ceph rw,relatime - ceph 10.0.0.3:6789:/ rw,name=admin,secret=<hidden>,acl
86 28 0:70 / /mnt/glusterfs rw,relatime - fuse.glusterfs g:/v rw,user_id=0,group_id=0,allow_other
87 28 0:71 / /mnt/posix rw,relatime - nfs filer:/export/p rw,vers=3,local_lock=posix
88 28 0:72 / /x rw - nfs4 filer:/one rw,vers=4.1,local_lock=none
89 28 0:72 / /y rw - nfs filer:/two rw,vers=3,local_lock=all
";

    #[test]
    fn each_device_of_a_mount_table_has_its_own_reach() {
        let expected = [
            (55, LockReach::Unknown),
            (56, LockReach::Nfs4),
            (57, LockReach::NotShared),
            (58, LockReach::Nfs3),
            (59, LockReach::Cluster),
            (60, LockReach::NotShared),
            (61, LockReach::Cluster),
            (62, LockReach::Unknown),
            (63, LockReach::Unknown),
            (64, LockReach::NotShared),
            (65, LockReach::Unknown),
            (66, LockReach::Unknown),
            (67, LockReach::Local),
            (68, LockReach::Unknown),
            (69, LockReach::Cluster),
            (70, LockReach::Unknown),
            (71, LockReach::NotShared),
            // Two lines of one device that do not agree.
            (72, LockReach::Unknown),
            // Not mounted here.
            (99, LockReach::Unknown),
        ];
        for (minor, reach) in expected {
            assert_eq!(lock_reach(MOUNTS, (0, minor)), reach, "0:{minor}");
        }
        assert_eq!(lock_reach(MOUNTS, (259, 2)), LockReach::Local);
    }

    #[test]
    fn a_promise_is_made_only_where_all_hosts_see_the_lock() {
        let cases = [
            ("nfs4", "vers=4.2,hard,local_lock=none", LockReach::Nfs4),
            ("nfs", "vers=3,local_lock=none", LockReach::Nfs3),
            ("nfs", "vers=3,nolock,local_lock=all", LockReach::NotShared),
            ("nfs", "vers=3,local_lock=flock", LockReach::NotShared),
            ("nfs", "vers=3,local_lock=posix", LockReach::NotShared),
            ("lustre", "flock", LockReach::Cluster),
            ("lustre", "localflock", LockReach::NotShared),
            ("lustre", "", LockReach::NotShared),
            ("cifs", "nobrl", LockReach::NotShared),
            ("cifs", "", LockReach::Unknown),
            ("fuse.sshfs", "", LockReach::Unknown),
            ("9p", "", LockReach::Unknown),
            ("virtiofs", "", LockReach::Unknown),
            ("beegfs", "", LockReach::Unknown),
            ("neverheardof", "", LockReach::Unknown),
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
