//! Lines of /proc/self/mountinfo, proc_pid_mountinfo(5).
#![no_main]

use leasehold::mount::{LockReach, Mount, lock_reach};
use libfuzzer_sys::fuzz_target;

/// As the kernel prints a path.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\134")
        .replace(' ', r"\040")
        .replace('\t', r"\011")
        .replace('\n', r"\012")
}

fuzz_target!(|text: &str| {
    for mount in text.lines().filter_map(Mount::parse).take(3) {
        // Said twice it says the same; where the lines of a device disagree nothing is known.
        let reach = lock_reach(text, mount.device);
        assert_eq!(lock_reach(&format!("{text}\n{text}"), mount.device), reach);
        assert!(reach == mount.lock_reach() || reach == LockReach::Unknown);
    }

    if let Some((target, source)) = text
        .split_once('|')
        .filter(|(target, source)| !target.is_empty() && !source.is_empty())
    {
        let (major, minor) = (target.len() as u32, source.len() as u32);
        let (at, from) = (escaped(target), escaped(source));
        let line =
            format!("36 25 {major}:{minor} / {at} rw,noatime shared:1 - nfs4 {from} rw,vers=4.2,local_lock=none");
        let mount = Mount::parse(&line).expect("a line of mountinfo");
        assert_eq!(
            (mount.device, &*mount.target, &*mount.source),
            ((major, minor), target, source)
        );
        assert_eq!(mount.options, ["rw", "noatime", "rw", "vers=4.2", "local_lock=none"]);
    }
});
