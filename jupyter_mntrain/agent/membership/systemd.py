"""systemd unit: starts the agent at boot, and keeps what the user has edited in it."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_mntrain.agent.membership.state import Membership
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.model.whereabouts import kept_folder, user_name

UNIT = "mntrain-agent.service"

_HEAD = "# Written by: mntrain agent install-service. Remove with: mntrain agent remove-service\n"
_AS_WRITTEN = "# As written: "
"""Before the digest of all lines below it: whether somebody has edited them since."""

_TEXT = """\
[Unit]
Description=jupyter_mntrain agent: node {name} of cluster {cluster}
Wants=network-online.target
After=network-online.target

[Service]
ExecStart={command}
# Supervisors and ranks keep running while the agent is restarted or upgraded; it adopts them again.
KillMode=process
Restart=always
RestartSec=2
# systemd's default would limit the ranks, too.
TasksMax=infinity
LimitNOFILE=1048576
# NCCL locks the memory that InfiniBand adapters read and write.
LimitMEMLOCK=infinity
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
    """Return the path of the unit: the system's for root, else this user's."""
    if is_root:
        return Path("/etc/systemd/system") / UNIT
    return kept_folder("config", None) / "systemd" / "user" / UNIT


def unit_text(membership: Membership, state: Path, *, is_root: bool) -> str:
    command = [sys.executable, "-m", "jupyter_mntrain.agent", "run", "--wait-to-join"]
    command += ["--state-dir", str(state)]
    body = _TEXT.format(
        name=_described(membership.settings.name),
        cluster=_described(membership.cluster),
        # systemd reads % and $ itself.
        command=shlex.join(command).replace("%", "%%").replace("$", "$$"),
        hardening=_HARDENING if is_root else "",
        target="multi-user.target" if is_root else "default.target",
    )
    return f"{_HEAD}{_AS_WRITTEN}{_digest(body)}\n{body}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def is_edited(text: str) -> bool:
    """Return whether a unit differs from what any version of :func:`unit_text` wrote."""
    head, _, body = text.removeprefix(_HEAD).partition("\n")
    return head != f"{_AS_WRITTEN}{_digest(body)}"


def _described(name: str) -> str:
    return shown_name(name).replace("%", "%%")


def install(
    membership: Membership,
    state: Path,
    *,
    path: Path | None = None,
    is_root: bool | None = None,
    run: Run | None = None,
    is_restarted: bool = False,
) -> list[str]:
    """Write the unit and start it. A correct unit stays, and a running agent keeps running.

    Args:
        is_restarted: restart the agent even so: its package was changed.

    Returns:
        Lines that say what was done and what is left to do.

    Raises:
        MntrainError: the unit cannot be written, or systemd refuses it.
    """
    is_root = os.geteuid() == 0 if is_root is None else is_root
    path = path or unit_path(is_root=is_root)
    lines, is_new = _write(path, unit_text(membership, state, is_root=is_root))
    control = _control(is_root=is_root)
    start = "restart" if is_new or is_restarted else "start"
    for words in (("daemon-reload",), ("enable", UNIT), (start, UNIT)):
        _tell([*control, *words], run or _run)
    lines.append(f"{UNIT} is running and starts at boot")
    if not is_root:
        lines += _lingering(user_name(), run or _run)
    return [*lines, f"its log: {'journalctl' if is_root else 'journalctl --user'} -u {UNIT} -f"]


def _write(path: Path, text: str) -> tuple[list[str], bool]:
    """Write the unit unless the user has edited it. Returns lines to print, and whether it has
    changed.
    """
    try:
        before = path.read_text() if path.exists() else None
        if before == text:
            return [], False
        if before is not None and is_edited(before):
            kept = f"kept {path} as it was edited; for a new one, run mntrain agent remove-service"
            return [f"{kept} first"], False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise MntrainError(f"cannot write {path}: {error.strerror}", fix="run it as root") from None
    return [f"wrote {path}"], True


def _lingering(user: str, run: Run) -> list[str]:
    """Let the user's service outlive logins (lingering), or say how to do that."""
    asked = run(["loginctl", "show-user", user, "--property=Linger", "--value"])
    if asked.returncode == 0 and asked.stdout.strip() == "yes":
        return []
    if run(["loginctl", "enable-linger", user]).returncode == 0:
        return [f"lingering is on for {user}: it keeps running while you are logged out"]
    return [f"to keep it running while you are logged out: sudo loginctl enable-linger {user}"]


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
    if has_systemd():
        _tell([*control, "disable", "--now", UNIT], run or _run)
    path.unlink()
    if has_systemd():
        _tell([*control, "daemon-reload"], run or _run)
    return [f"removed {path}; running jobs continue"]


def _control(*, is_root: bool) -> list[str]:
    return ["systemctl"] if is_root else ["systemctl", "--user"]


def has_systemd() -> bool:
    """Return whether this machine runs systemd."""
    # The check of sd_booted(3).
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # Over ssh, without a login session, a user's systemd is found by this alone.
    own = {"XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"} if os.geteuid() else {}
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env={**own, **os.environ}
    )


def is_active(*, is_root: bool | None = None, run: Run | None = None) -> bool:
    """Return whether the agent now runs under systemd."""
    is_root = os.geteuid() == 0 if is_root is None else is_root
    asked = (run or _run)([*_control(is_root=is_root), "is-active", "--quiet", UNIT])
    return asked.returncode == 0


def _tell(words: Sequence[str], run: Run) -> None:
    done = run(words)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise MntrainError(f"{shlex.join(words)}: {said}", fix="see: systemctl status " + UNIT)
