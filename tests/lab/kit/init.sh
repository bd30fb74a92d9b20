#!/bin/sh
# PID 1 of a node. Its root is the host's, read-only; the kernel hands over the lab_… words of its command line as
# environment. It ends by becoming the reaper of orphans, with the agent as its child.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
: "${lab_dir:?}" "${lab_name:?}" "${lab_machine:?}" "${lab_role:?}" "${lab_nfs:?}" "${lab_control:?}" "${lab_port:?}" "${lab_agent:?}"

mount -t proc proc /proc
mount -t sysfs sysfs /sys
# Most kernels have done this one by themselves.
mountpoint -q /dev || mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
for dir in /tmp /run /mnt /dev/shm; do mount -t tmpfs tmpfs "$dir"; done
chmod 1777 /tmp /dev/shm

mkdir /run/lab /run/disk /run/rpc_pipefs /mnt/v4 /mnt/v3 /mnt/nfs
mount -t hostfs -o "ro,$lab_dir" none /run/lab
mkdir -p /run/modules/lib/modules
ln -s "/usr/lib/uml/modules/$(uname -r)" /run/modules/lib/modules/
module() { modprobe -d /run/modules "$@"; }

hostname "$lab_name"
echo "$lab_machine" > /run/machine-id
mount --bind /run/machine-id /etc/machine-id
mount --bind /run/lab/hosts /etc/hosts

# What a machine keeps over a reboot: the books of statd and nfsdcld, without which no lock could be reclaimed.
mount -t ext4 /dev/ubda /run/disk
mkdir -p /run/disk/nfs
mount --bind /run/disk/nfs /var/lib/nfs
mkdir -p /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/v4recovery /var/lib/nfs/nfsdcld
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /var/lib/nfs/state
chown -R statd /var/lib/nfs/sm /var/lib/nfs/sm.bak /var/lib/nfs/state

ip link set lo up
ip address add "$lab_nfs/24" dev vec0
ip link set vec0 up
ip address add "$lab_control/24" dev vec1
ip link set vec1 up
rpcbind -w

serve() {
    # Both grace periods hold up locks of both versions; lockd's is rounded up to a multiple of its timeout, at least 3.
    module lockd "nlm_timeout=$1" "nlm_grace_period=$1"
    module nfsd
    mount -t nfsd nfsd /proc/fs/nfsd
    mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
    echo 10 > /proc/fs/nfsd/nfsv4leasetime
    echo 10 > /proc/fs/nfsd/nfsv4gracetime
    mkdir /mnt/export
    mount -t ext4 /dev/ubdb /mnt/export
    mkdir -p /mnt/export/home
    chmod 1777 /mnt/export/home
    nfsdcld
    rpc.statd
    exportfs -i -o rw,no_root_squash,no_subtree_check,fsid=0,insecure '*:/mnt/export'
    rpc.nfsd 4
    rpc.mountd
}

if [ "$lab_role" = server ]; then
    # Nobody can have a lock to reclaim from a disk that was never served.
    if [ -e /run/disk/served ]; then serve 10; else serve 3; fi
    touch /run/disk/served
else
    module -a nfs nfsv4 nfsv3
    rpc.statd
fi

# The first word of $lab_agent is the program; the kernel's command line has no blanks in a word.
# shellcheck disable=SC2046
env LEASEHOLD_LAB_ROLE="agent=$lab_control:$lab_port" $(echo "$lab_agent" | tr ',' ' ') &
wait
