#!/bin/bash
# PID 1 of a box (see systemd_box.py): an overlay of / with devices of its own, then systemd in it.
# Wants BOX (a folder, shared with the outside), SHARED (folders on other file systems to share, a line each), SSHD (its config).
set -e
R=$BOX/t/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$BOX/t/upper,workdir=$BOX/t/work" "$R"
while read -r folder; do
  [ -n "$folder" ] || continue
  mkdir -p "$R$folder"
  mount --rbind "$folder" "$R$folder"
done <<<"$BOX
$SHARED"
mount -t proc proc "$R/proc"
mount -t sysfs -o ro sysfs "$R/sys"
mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$R/run"
mount -t tmpfs -o mode=755 tmpfs "$R/dev"
for device in null zero full random urandom tty; do
  touch "$R/dev/$device"
  mount --bind "/dev/$device" "$R/dev/$device"
done
mkdir "$R"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$R/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$R/dev/shm"
ln -s pts/ptmx "$R/dev/ptmx"
ln -s /proc/self/fd "$R/dev/fd"
ln -s /proc/self/fd/0 "$R/dev/stdin"
ln -s /proc/self/fd/1 "$R/dev/stdout"
ln -s /proc/self/fd/2 "$R/dev/stderr"

U=$R/etc/systemd/system
if [ ! -e "$U/box.target" ]; then # the first boot: later ones find what the tests have changed
  # What Debian enables for every machine is no part of a box: only what a test enables starts with it.
  rm -rf "$U"/*.target.wants
  rm -f "$R/etc/fstab"
  : >"$R/etc/fstab"
  # What would touch the machine outside, or waits for devices that a box has not.
  for unit in systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket \
    systemd-udevd-kernel.socket systemd-timesyncd.service systemd-sysctl.service systemd-modules-load.service \
    systemd-remount-fs.service systemd-networkd.service systemd-networkd.socket systemd-resolved.service \
    systemd-sysusers.service systemd-tmpfiles-setup.service systemd-tmpfiles-setup-dev.service \
    systemd-machine-id-commit.service systemd-random-seed.service systemd-update-utmp.service \
    systemd-binfmt.service kmod-static-nodes.service systemd-hwdb-update.service systemd-pstore.service \
    dev-hugepages.mount dev-mqueue.mount sys-kernel-config.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount \
    systemd-firstboot.service systemd-tmpfiles-clean.timer getty.target; do
    ln -sf /dev/null "$U/$unit"
  done
  cat >"$U/box.target" <<END
[Unit]
Description=All that a box runs
Requires=sysinit.target dbus.socket box-sshd.service systemd-logind.service
Wants=multi-user.target
After=sysinit.target box-sshd.service systemd-logind.service
AllowIsolate=yes
END
  cat >"$U/box-sshd.service" <<END
[Unit]
After=sysinit.target
[Service]
RuntimeDirectory=sshd
KillMode=process
ExecStart=/usr/sbin/sshd -D -e -f $SSHD
END
fi
exec chroot "$R" env -i container=unshare PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=box.target --log-target=console --show-status=false </dev/null
