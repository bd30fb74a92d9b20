//! The lab's networks: two bridges in a network namespace of the run's own, so that no packet can leave it and the
//! removal of the namespace removes everything.

use super::{Result, tool};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;

#[derive(Clone, Copy, PartialEq)]
pub enum Net {
    /// What a partition cuts.
    Nfs,
    /// What the driver talks over, so that a node that was cut off still obeys.
    Control,
}

impl Net {
    pub fn address(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, if self == Net::Nfs { 77 } else { 78 }, 0, number)
    }

    fn suffix(self) -> &'static str {
        if self == Net::Nfs { "n" } else { "c" }
    }
}

/// The driver's own place on the control network.
pub const DRIVER: u8 = 254;

pub fn namespace_of(run: &str) -> String {
    format!("lh-{run}")
}

pub fn namespace_file(run: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace_of(run))
}

/// At most 15 bytes: `lh`, a run id of 4, a node name of up to 6, `-n`.
pub fn tap(run: &str, node: &str, net: Net) -> String {
    format!("lh{run}{node}-{}", net.suffix())
}

fn bridge(run: &str, net: Net) -> String {
    format!("lh{run}-{}", net.suffix())
}

/// Makes namespace and bridges; the answer is the namespace's inode number.
pub fn create(run: &str) -> Result<u64> {
    let ns = namespace_of(run);
    tool("ip", &["netns", "add", &ns])?;
    // Bridges pass IPv6 noise of every node to every node; nothing here uses it.
    tool(
        "ip",
        &[
            "netns",
            "exec",
            &ns,
            "sysctl",
            "-qw",
            "net.ipv6.conf.default.disable_ipv6=1",
        ],
    )?;
    tool("ip", &["-n", &ns, "link", "set", "lo", "up"])?;
    for net in [Net::Nfs, Net::Control] {
        let bridge = bridge(run, net);
        tool("ip", &["-n", &ns, "link", "add", &bridge, "type", "bridge"])?;
        tool("ip", &["-n", &ns, "link", "set", &bridge, "up"])?;
    }
    let address = format!("{}/24", Net::Control.address(DRIVER));
    tool(
        "ip",
        &["-n", &ns, "address", "add", &address, "dev", &bridge(run, Net::Control)],
    )?;
    let file = namespace_file(run);
    Ok(file
        .metadata()
        .map_err(|e| format!("{}: stat: {e}", file.display()))?
        .ino())
}

pub fn add_taps(run: &str, node: &str) -> Result {
    let ns = namespace_of(run);
    for net in [Net::Nfs, Net::Control] {
        let tap = tap(run, node, net);
        tool("ip", &["-n", &ns, "tuntap", "add", "dev", &tap, "mode", "tap"])?;
        tool(
            "ip",
            &["-n", &ns, "link", "set", &tap, "master", &bridge(run, net), "up"],
        )?;
    }
    Ok(())
}

pub fn remove_taps(run: &str, node: &str) -> Result {
    let ns = namespace_of(run);
    let remove = |net| tool("ip", &["-n", &ns, "link", "delete", &tap(run, node, net)]);
    [Net::Nfs, Net::Control].into_iter().try_for_each(remove)
}

pub fn cut(run: &str, node: &str) -> Result {
    tool(
        "ip",
        &[
            "-n",
            &namespace_of(run),
            "link",
            "set",
            &tap(run, node, Net::Nfs),
            "nomaster",
        ],
    )
}

pub fn mend(run: &str, node: &str) -> Result {
    let (tap, bridge) = (tap(run, node, Net::Nfs), bridge(run, Net::Nfs));
    tool(
        "ip",
        &["-n", &namespace_of(run), "link", "set", &tap, "master", &bridge],
    )
}

/// The kernel takes bridges and taps away with the namespace, once no process is left in it.
pub fn remove(run: &str) -> Result {
    if !namespace_file(run).exists() {
        return Ok(());
    }
    tool("ip", &["netns", "delete", &namespace_of(run)])
}

/// Runs `work` on a thread of its own that has entered the namespace: sockets and children made there belong to it.
pub fn within<T: Send>(run: &str, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = namespace_file(run);
    thread::scope(|scope| {
        let entered = scope.spawn(move || {
            let file = File::open(&path).map_err(|e| format!("{}: open: {e}; is the lab up?", path.display()))?;
            setns(file, CloneFlags::CLONE_NEWNET)
                .map_err(|e| format!("{}: enter the namespace: {e}", path.display()))?;
            work()
        });
        entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
