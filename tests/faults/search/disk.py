"""Faults of disks: full, read-only, hung, too small, gone."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Accept, Case, Channel, Moment, Truth
from tests.faults.search.mechanism import (
    Code,
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    coded,
    rank_of,
)
from tests.faults.search.vocabulary import (
    BUSY,
    CRASHED,
    DISK_ERROR,
    DISK_FULL,
    DISK_HANGS,
    EXCEPTION,
    FILE_TOO_LARGE,
    KILLED,
    NO_FILE,
    READ_ONLY,
    SHM_SMALL,
    STATE_LOST,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage

FAILED = frozenset({"failed", "stopping"})
RUNNING = frozenset({"running"})
STALL_S = 25.0


def _kept(stage: Stage, name: str) -> Path:
    return stage.host(name).home / "kept"


@contextmanager
def _mounted(stage: Stage, name: str, where: Path, options: str) -> Iterator[None]:
    """A file system of memory on one host alone."""
    where.mkdir(parents=True, exist_ok=True)
    stage.on(name, "mount", "-t", "tmpfs", "-o", options, "none", str(where))
    try:
        yield
    finally:
        with suppress(Exception):
            # The agent keeps a job's journal open.
            stage.on(name, "umount", "--lazy", str(where))


# Where ranks save


def _keeps(setting: Setting) -> list[str]:
    """Every rank saves to this directory, the same on every host."""
    return ["--env", "KEPT=/var/tmp/mntrain-kept"]


KEPT = Path("/var/tmp/mntrain-kept")


def _full(setting: Setting) -> Drawn:
    how = setting.chance.choice(("size=16k", "size=1m,nr_inodes=1", "size=48k"))
    truth = Truth(rank_of(setting, DISK_FULL), states=FAILED)
    return Drawn(truth, {"options": how, "words": _keeps(setting)})


def _read_only(setting: Setting) -> Drawn:
    truth = Truth(rank_of(setting, READ_ONLY, EXCEPTION), states=FAILED)
    return Drawn(truth, {"options": "ro", "words": _keeps(setting)})


@contextmanager
def _save_to(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Every host has its own file system there; the guilty one's has the options."""
    with (
        _mounted(stage, case.other, KEPT, "size=64m"),
        _mounted(stage, case.guilty, KEPT, parameters["options"]),
    ):
        yield


def _directory_gone(setting: Setting) -> Code:
    text = setting.chance.choice(
        (
            "import shutil; shutil.rmtree(KEPT)\nopen(KEPT / 'x', 'w')",
            "KEPT = Path('/mnt/nowhere/kept')\nopen(KEPT / 'rank', 'wb')",
            "import shutil; torch.save({}, '/mnt/nowhere/model.pt')",
        )
    )
    # torch.save says "Parent directory … does not exist", as a RuntimeError.
    return Code(text, Truth(rank_of(setting, NO_FILE, EXCEPTION), states=FAILED))


def _file_limit(setting: Setting) -> Code:
    text = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with open('big', 'wb') as big:
    big.write(bytes(10**6))
"""
    return Code(text, Truth(rank_of(setting, FILE_TOO_LARGE, EXCEPTION), states=FAILED))


def _errno(setting: Setting) -> Code:
    """What the kernel answers to a write on a worn-out disk, over quota, or over NFS."""
    number, kinds = setting.chance.choice(
        (("EIO", DISK_ERROR), ("EDQUOT", DISK_FULL), ("ESTALE", DISK_ERROR), ("ENOSPC", DISK_FULL))
    )
    text = f"""
import errno
raise OSError(errno.{number}, os.strerror(errno.{number}), str(KEPT / 'rank-0'))
"""
    return Code(text, Truth(rank_of(setting, kinds, EXCEPTION), states=FAILED))


def _hangs(setting: Setting) -> Code:
    """A write that never returns, in a system call that can be interrupted."""
    text = """
os.mkfifo('pipe')
open('pipe', 'wb')
"""
    states = frozenset({"running", "stopping"})
    return Code(text, Truth(rank_of(setting, BUSY | DISK_HANGS), states=states, within_s=STALL_S))


def _frozen_disk(setting: Setting) -> Drawn:
    """As an NFS server that is gone: writers wait in the kernel."""
    truth = Truth(rank_of(setting, DISK_HANGS, BUSY), states=RUNNING, within_s=STALL_S)
    return Drawn(truth, {"phase": setting.chance.choice(("step", "save"))})


@contextmanager
def _freeze_disk(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    home = stage.host(case.guilty).home
    image, where = home / "disk.img", home / "disk"
    where.mkdir(exist_ok=True)
    with image.open("wb") as file:
        file.truncate(16 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    stage.on(case.guilty, "mount", "-o", "loop", str(image), str(where))
    stage.on(case.guilty, "fsfreeze", "-f", str(where))
    try:
        code = f"open({str(where / 'x')!r}, 'wb').write(b'x')"
        stage.put(case.layout, case.rank, parameters["phase"], code)
        yield
    finally:
        stage.on(case.guilty, "fsfreeze", "-u", str(where))
        with suppress(Exception):
            stage.on(case.guilty, "umount", "--lazy", str(where))


def _slow_save(setting: Setting) -> Code:
    """A save takes a thousand times longer than the one before."""
    text = "time.sleep(1000)"
    return Code(text, Truth(rank_of(setting, BUSY | DISK_HANGS), states=RUNNING, within_s=STALL_S))


# Shared memory


_BY_NAME = """
torch.multiprocessing.set_sharing_strategy('file_system')
torch.zeros(10**6).share_memory_()
"""
_MAPPED = """
import mmap
file = open('/dev/shm/x', 'w+b')
file.truncate(10**6)
mmap.mmap(file.fileno(), 10**6)[:] = bytes(10**6)
"""


def _shm(setting: Setting) -> Drawn:
    code, vague = setting.chance.choice(
        (
            ("torch.zeros(10**6).share_memory_()", EXCEPTION),
            (_BY_NAME, EXCEPTION),
            (_MAPPED, CRASHED),
            (
                "for name in 'xyz':\n    open(f'/dev/shm/{name}', 'wb').write(bytes(60_000))",
                EXCEPTION,
            ),
        )
    )
    truth = Truth(rank_of(setting, SHM_SMALL, DISK_FULL | vague), states=FAILED)
    return Drawn(truth, {"code": code})


@contextmanager
def _shrink_shm(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _mounted(stage, case.guilty, Path("/dev/shm"), "size=64k"):
        phase = {"steps": "step", "before step 1": "join"}[case.moment]
        stage.put(case.layout, case.rank, phase, parameters["code"])
        yield


# Where the agent keeps jobs


def _jobs_full(setting: Setting) -> Drawn:
    """A rank's output fills the disk of the job's own directory."""
    accepts = (Accept(DISK_FULL, nodes=frozenset({setting.guilty})),)
    return Drawn(Truth(accepts, states=FAILED, within_s=25.0))


@contextmanager
def _fill_jobs(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _mounted(stage, case.guilty, stage.state(case.guilty) / "jobs", "size=4m"):
        code = "for _ in range(400): print('x' * 100_000)"
        stage.put(case.layout, case.rank, "step", code)
        style = "reduce" if case.seed % 2 else "ring"
        stage.launch(case.layout, style)
        stage.await_running()
        yield
    stage.spoil()


def _state_read_only(setting: Setting) -> Drawn:
    """Nothing can be written there any more: the job goes on, and it has to be said."""
    channels: frozenset[Channel] = frozenset({"node", "other", "cause", "stall"})
    accept = Accept(
        READ_ONLY | STATE_LOST | DISK_FULL, nodes=frozenset({setting.guilty}), channels=channels
    )
    return Drawn(Truth((accept,), within_s=STALL_S))


@contextmanager
def _lock_state(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    state = str(stage.state(case.guilty))
    stage.on(case.guilty, "mount", "--bind", state, state)
    stage.on(case.guilty, "mount", "-o", "remount,ro,bind", state)
    yield
    stage.on(case.guilty, "umount", "--lazy", state)
    stage.spoil()


def _logs_deleted(setting: Setting) -> Drawn:
    truth = Truth(is_harmless=True, states=RUNNING)
    return Drawn(truth, {"what": setting.chance.choice(("log", "metrics"))})


@contextmanager
def _delete_logs(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    for attempt in (stage.state(case.guilty) / "jobs").glob(f"{stage.bench.job}/attempt-*"):
        if parameters["what"] == "log":
            (attempt / "log").unlink()
        else:
            shutil.rmtree(attempt / "metrics")
    yield


def _deleted_then_killed(setting: Setting) -> Drawn:
    return Drawn(Truth(rank_of(setting, KILLED), states=FAILED))


@contextmanager
def _delete_and_kill(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    with _delete_logs(stage, case, {"what": "log"}):
        stage.put(case.layout, case.rank, "step", "os.kill(os.getpid(), 9)")
        yield


SAVES: tuple[Moment, ...] = ("save",)

DISK: tuple[Mechanism, ...] = (
    Mechanism(
        "a full checkpoint disk", "disk", _full, _save_to, ("launch",), spoils=True, weight=4
    ),
    Mechanism(
        "a read-only checkpoint disk",
        "disk",
        _read_only,
        _save_to,
        ("launch",),
        spoils=True,
        weight=2,
    ),
    coded("a checkpoint directory that is gone", "disk", _directory_gone, moments=SAVES, weight=3),
    coded("a limit of file sizes", "disk", _file_limit, moments=("save", "steps"), pairs=True),
    coded("an error of the disk", "disk", _errno, moments=("save", "steps"), weight=3, pairs=True),
    coded("a write that never returns", "disk", _hangs, moments=SAVES),
    Mechanism("a frozen disk", "disk", _frozen_disk, _freeze_disk, weight=3),
    coded("an endless save", "disk", _slow_save, moments=SAVES),
    Mechanism(
        "little shared memory",
        "disk",
        _shm,
        _shrink_shm,
        ("steps", "before step 1"),
        spoils=True,
        weight=3,
    ),
    Mechanism(
        "a log that fills the disk",
        "disk",
        _jobs_full,
        _fill_jobs,
        ("launch",),
        spoils=True,
        weight=1,
    ),
    Mechanism(
        "a read-only state directory", "disk", _state_read_only, _lock_state, spoils=True, weight=1
    ),
    Mechanism("deleted logs", "disk", _logs_deleted, _delete_logs, spoils=True, weight=2),
    Mechanism(
        "deleted logs, then a killed rank",
        "disk",
        _deleted_then_killed,
        _delete_and_kill,
        spoils=True,
        weight=1,
    ),
)
