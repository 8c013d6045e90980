"""systemd unit: ``mntrain agent install-service`` starts the agent at boot."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_mntrain.agent.membership.state import Membership
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import shown_name

UNIT = "mntrain-agent.service"

_TEXT = """\
# Written by: mntrain agent install-service. Remove with: mntrain agent remove-service
[Unit]
Description=jupyter_mntrain agent: node {name} of cluster {cluster}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
# Keepers and ranks keep running while the agent is restarted or upgraded; it adopts them again.
KillMode=process
Restart=always
RestartSec=2
# systemd's default would limit the ranks, too.
TasksMax=infinity
LimitNOFILE=1048576
{hardening}
[Install]
WantedBy={target}
"""

_HARDENING = """\
# What training needs stays: GPUs, /dev/shm, every data directory, the modules and device nodes that
# CUDA loads and makes on first use. /tmp stays shared: a private one ends with the agent, not with
# the jobs. The agent itself makes its files private; a UMask would reach what jobs write.
NoNewPrivileges=yes
ProtectSystem=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
LockPersonality=yes
"""
"""For the system's service. In a user's service most of these need user namespaces, which many
systems forbid, and would keep the service from starting; and NoNewPrivileges would keep the setuid
program nvidia-modprobe from making the device nodes of GPUs."""

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def unit_path(*, is_root: bool) -> Path:
    """Path of the unit: the system's for root, else this user's."""
    if is_root:
        return Path("/etc/systemd/system") / UNIT
    configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return configuration / "systemd" / "user" / UNIT


def unit_text(membership: Membership, state: Path, *, is_root: bool) -> str:
    command = [sys.executable, "-m", "jupyter_mntrain.agent", "run", "--state-dir", str(state)]
    return _TEXT.format(
        name=_described(membership.settings.name),
        cluster=_described(membership.cluster),
        # systemd reads % and $ itself.
        command=shlex.join(command).replace("%", "%%").replace("$", "$$"),
        hardening=_HARDENING if is_root else "",
        target="multi-user.target" if is_root else "default.target",
    )


def _described(name: str) -> str:
    return shown_name(name).replace("%", "%%")


def install(
    membership: Membership,
    state: Path,
    *,
    path: Path | None = None,
    is_root: bool | None = None,
    run: Run | None = None,
) -> list[str]:
    """Write the unit and start it. Returns lines that say what was done and what is left to do.

    Raises:
        MntrainError: the unit cannot be written, or systemd refuses it.
    """
    is_root = os.geteuid() == 0 if is_root is None else is_root
    path = path or unit_path(is_root=is_root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit_text(membership, state, is_root=is_root))
    except OSError as error:
        raise MntrainError(f"cannot write {path}: {error.strerror}", fix="run it as root") from None
    done = [f"wrote {path}"]
    control = _control(is_root=is_root)
    if not _has_systemd():
        later = f"{shlex.join([*control, 'enable', '--now', UNIT])}"
        return [*done, f"systemd is not running here; enable the service later with: {later}"]
    for words in (("daemon-reload",), ("enable", UNIT), ("restart", UNIT)):
        _tell([*control, *words], run or _run)
    done.append(f"{UNIT} is running and starts at boot")
    if not is_root:
        user = pwd.getpwuid(os.geteuid()).pw_name
        done.append(
            f"to keep it running while you are logged out: sudo loginctl enable-linger {user}"
        )
    return [*done, f"its log: {'journalctl' if is_root else 'journalctl --user'} -u {UNIT} -f"]


def remove(
    *, path: Path | None = None, is_root: bool | None = None, run: Run | None = None
) -> list[str]:
    """Stop and remove the service. Jobs continue.

    Raises:
        MntrainError: there is no service, or systemd refuses.
    """
    is_root = os.geteuid() == 0 if is_root is None else is_root
    path = path or unit_path(is_root=is_root)
    if not path.exists():
        raise MntrainError(f"there is no {path}")
    control = _control(is_root=is_root)
    if _has_systemd():
        _tell([*control, "disable", "--now", UNIT], run or _run)
    path.unlink()
    if _has_systemd():
        _tell([*control, "daemon-reload"], run or _run)
    return [f"removed {path}; running jobs continue"]


def _control(*, is_root: bool) -> list[str]:
    return ["systemctl"] if is_root else ["systemctl", "--user"]


def _has_systemd() -> bool:
    # The check of sd_booted(3).
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _tell(words: Sequence[str], run: Run) -> None:
    done = run(words)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise MntrainError(f"{shlex.join(words)}: {said}", fix="see: systemctl status " + UNIT)
