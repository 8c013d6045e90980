"""A real sshd on a simulated host, with keys and a configuration of its own, and a client for it.

Both read nothing of this machine's: neither ``/etc/ssh`` nor anybody's ``~/.ssh``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.netlab.host import Host, HostProcess

SSHD = "/usr/sbin/sshd"
"""It wants to be called by its absolute path."""

_SERVER = """\
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
PrintMotd no
SetEnv HOME={home} PATH={path} PYTHONPATH={packages} OMP_NUM_THREADS=1
"""


def missing_sshd() -> str | None:
    """Why there is none here, with the fix."""
    if not Path(SSHD).exists() or shutil.which("ssh") is None:
        return "no sshd here. Fix: apt-get install openssh-server"
    return None


def start_sshd(host: Host, packages: Path, *, port: int = 22) -> HostProcess:
    """An sshd for root's key of :func:`client`; what logs in has the host's home.

    Args:
        packages: directory of packages that every Python there finds.
    """
    folder = folder_of(host)
    folder.mkdir(mode=0o700)
    _make_key(folder / "host_key")
    (folder / "authorized").touch()
    path = f"{Path(sys.base_prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    config = folder / "sshd_config"
    config.write_text(
        _SERVER.format(port=port, folder=folder, home=host.home, path=path, packages=packages)
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where it gives up its rights
    log = folder / "log"
    return host.popen(
        [SSHD, "-D", "-f", str(config), "-E", str(log)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def folder_of(host: Host) -> Path:
    return host.home / "sshd"


def client(driver: Host, hosts: Sequence[tuple[Host, int]]) -> Path:
    """A directory for ``$PATH`` whose ``ssh`` has a key that ``hosts`` accept, and knows theirs."""
    folder = driver.home / "ssh"
    folder.mkdir(mode=0o700)
    _make_key(folder / "key")
    known = []
    for host, port in hosts:
        at = folder_of(host)
        (at / "authorized").write_text((folder / "key.pub").read_text())
        name = host.name if port == 22 else f"[{host.name}]:{port}"
        known.append(f"{name} {(at / 'host_key.pub').read_text()}")
    (folder / "known_hosts").write_text("".join(known))
    config = folder / "config"
    config.write_text(
        f"Host *\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        "Host stranger\n  HostName node1\n  HostKeyAlias stranger\n"
        "Host keyless\n  HostName node1\n  HostKeyAlias node1\n  PubkeyAuthentication no\n"
    )
    program = folder / "ssh"
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config} "$@"\n')
    program.chmod(0o755)
    return folder


def packages_without_ours(folder: Path) -> Path:
    """Everything that is installed here but this package and pip: what a cluster's own Python
    modules would be, so that nothing is downloaded."""
    folder.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        name = path.name.lower()
        own = ("jupyter_mntrain", "_editable", "pip", "__pycache__")
        if not name.startswith(own) and not name.endswith(".pth"):
            (folder / path.name).symlink_to(path)
    return folder


def listens(driver: Host, name: str, port: int = 22) -> bool:
    """Whether that host's sshd can be reached from this one."""
    test = f"exec 3<>/dev/tcp/{name}/{port}"
    return driver.run(["bash", "-c", test]).returncode == 0


def with_path(folder: Path) -> dict[str, str]:
    """An environment in which that client is found first."""
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def _make_key(path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(words, check=True)
