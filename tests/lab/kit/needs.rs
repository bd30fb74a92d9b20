//! What the lab needs of this machine.

use std::fs;
use std::path::Path;

const TOOLS: &[&str] = &[
    "linux.uml",
    "modprobe",
    "ip",
    "setsid",
    "flock",
    "mkfs.ext4",
    "mount.nfs",
    "rpcbind",
    "rpc.statd",
    "rpc.nfsd",
    "rpc.mountd",
    "exportfs",
    "nfsdcld",
    "sshd",
    "ssh",
];

const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_ADMIN: u64 = 1 << 21;

fn on_path(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').any(|dir| Path::new(dir).join(tool).exists())
}

/// The first thing that is missing, in one line, or nothing.
pub fn missing() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    if !nix::unistd::geteuid().is_root() || capabilities & CAP_NET_ADMIN == 0 || capabilities & CAP_SYS_ADMIN == 0 {
        return Some("it takes root (CAP_NET_ADMIN and CAP_SYS_ADMIN)".into());
    }
    if let Err(e) = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("/dev/net/tun: open: {e}"));
    }
    if let Some(tool) = TOOLS.iter().find(|tool| !on_path(tool)) {
        return Some(format!("{tool} is not on PATH (scripts/lab setup installs it)"));
    }
    // A node's root is this machine's, read-only, so the places that it mounts over must exist.
    [
        "/usr/lib/uml/modules",
        "/etc/machine-id",
        "/etc/hosts",
        "/mnt",
        "/var/lib/nfs",
    ]
    .iter()
    .find(|path| !Path::new(path).exists())
    .map(|path| format!("{path} does not exist"))
}
