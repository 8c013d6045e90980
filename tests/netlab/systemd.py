"""A host of the lab on which systemd runs, as process 1 of its own process table."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from tests.netlab.commands import LabError
from tests.netlab.host import Host, HostProcess
from tests.waiting import until

SYSTEMD = "/lib/systemd/systemd"
BOOTED_S = 240.0
"""It takes 3 s where nothing else runs."""

LOOK_S = 0.1
"""Each look starts programs, for which the boot would have to wait."""

_BOOT = """
set -e
home=$1 group=$2
mount --make-rprivate /
mkdir -p "$home/disk/changed" "$home/disk/work" "$home/disk/root"
root=$home/disk/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$home/disk/changed,workdir=$home/disk/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
for at in /run /tmp; do mount -t tmpfs tmpfs "$root$at"; done
# What runs the tests may lie in /tmp itself.
for at in "${@:4}"; do
    if [ ! -d "$root$at" ]; then mkdir -p "$root$at"; mount --bind "$at" "$root$at"; fi
done
settings=$root/etc/systemd/system.conf.d
mkdir -p "$root$home" "$settings"
mount --bind "$home" "$root$home"
hostname > "$root/etc/hostname"
printf '[Manager]\\nDefaultEnvironment=HOME=%s\\n' "$home" > "$settings/home.conf"
# Its root must be a control group of its own.
hierarchies=$(for at in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
    if [ -e "$at/cgroup.procs" ]; then echo "$at"; fi; done)
for at in $hierarchies; do mkdir -p "$at/$group"; echo $$ > "$at/$group/cgroup.procs"; done
cd "$root"
mkdir -p old
pivot_root . old
exec unshare --cgroup bash -ec '
    if [ ! -e /old/sys/fs/cgroup/cgroup.procs ]; then mount -t tmpfs tmpfs /sys/fs/cgroup; fi
    for at in "$@"; do
        mkdir -p "$at"
        if [ "$(stat -f -c %T "/old$at")" = cgroup2fs ]; then mount -t cgroup2 cgroup2 "$at"
        else mount -t cgroup -o none,name=systemd systemd "$at"; fi
    done
    umount -l /old
    export container=netlab
    exec '"$3"' --system --unit=multi-user.target --log-target=null
' bash $hierarchies
"""
"""It sees this machine's files, and what it changes is its own, and outlives a power cut."""


class BootedHost:
    """A host with systemd. Its network is that of ``host``, which has power meanwhile.

    Use it as a context manager: the power is cut at the end.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self._outer: HostProcess | None = None

    def __enter__(self) -> BootedHost:
        self.power_on()
        return self

    def __exit__(self, *_: object) -> None:
        self.power_cut()

    @property
    def init(self) -> int:
        """Pid of its process 1, as seen from outside."""
        assert self._outer is not None
        found = psutil.Process(self._outer.pid).children(recursive=True)
        return next(one.pid for one in found if one.exe().endswith("/systemd/systemd"))

    def power_on(self) -> None:
        """Boot it.

        Raises:
            LabError: systemd did not come up.
        """
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
        boot = ["bash", "-c", _BOOT, "boot", str(self.host.home), self._group, SYSTEMD]
        boot += [str(Path.cwd()), sys.prefix]
        log = self.host.home / "boot.log"
        with log.open("ab") as out:
            self._outer = self.host.popen([*words, *boot], stdout=out, stderr=out)
        until(lambda: self._is_booted() or self._has_ended(), "systemd to boot", BOOTED_S)
        if self._has_ended():
            raise LabError(f"{self.host.name} did not boot: {log.read_text().strip()[-500:]}")

    def power_cut(self) -> None:
        """Kill process 1: the kernel ends everything else with it, at once."""
        if self._outer is None:
            return
        if not self._has_ended():
            os.kill(self.init, signal.SIGKILL)
        self._outer.wait()
        self._outer = None
        for hierarchy in Path("/sys/fs/cgroup").glob(f"**/{self._group}"):
            below = sorted(
                (path for path in hierarchy.glob("**/") if path != hierarchy), reverse=True
            )
            for group in (*below, hierarchy):
                until(partial(_removed, group), f"{group} to be empty")

    def add_user(self, name: str) -> None:
        """Add a user, who can run the tests' interpreter and has not logged in."""
        interpreter = Path(sys.executable).resolve()
        for words in (
            ["useradd", "--create-home", name],
            ["chmod", "a+rx", *map(str, interpreter.parents)],
        ):
            done = self.run(words)
            if done.returncode:
                raise LabError(f"{words[0]} on {self.host.name}: {done.stderr.strip()}")

    def run(
        self, words: Sequence[str], *, user: str | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """As :func:`subprocess.run` with its output captured as text, there.

        Args:
            user: as if logged in over ssh without a session of its own; ``None`` = as root.
        """
        enter = ["nsenter", f"--target={self.init}", "--all", "--", "env"]
        enter += ["-C", str(Path.cwd()), f"HOME={self.host.home}"]
        if user is not None:
            enter = [*enter[:-1], f"HOME=/home/{user}", "runuser", "-u", user, "--"]
        return subprocess.run(
            [*enter, *words],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def systemctl(self, *words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """Ask the system's manager, or a user's own."""
        if user is None:
            return self.run(["systemctl", *words])
        # Without a session, a user's manager is found by this alone.
        place = 'exec env XDG_RUNTIME_DIR="/run/user/$(id -u)" systemctl --user "$@"'
        return self.run(["sh", "-c", place, "sh", *words], user=user)

    @property
    def _group(self) -> str:
        return f"{self.host.namespace}-systemd"

    def _has_ended(self) -> bool:
        return self._outer is None or self._outer.poll() is not None

    def _is_booted(self) -> bool:
        time.sleep(LOOK_S)
        try:
            said = self.run(["systemctl", "is-system-running"]).stdout.strip()
        except (StopIteration, psutil.Error):  # not yet process 1
            return False
        return said in ("running", "degraded")  # services of this machine may fail there


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # the kernel still ends processes there
        return False
    return True


def missing_systemd() -> str | None:
    """Why no host can boot systemd here, in one line with the fix; ``None`` if one can."""
    if shutil.which("systemctl") is None or not Path(SYSTEMD).exists():
        return "no systemd here. Fix: apt-get install systemd"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "this kernel or container gives no overlay file system"
    return None
