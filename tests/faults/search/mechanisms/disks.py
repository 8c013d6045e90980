"""Faults of disks that ranks write to: full, read-only, hung, slow."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.search.case import Case, Moment, Truth
from tests.faults.search.mechanisms.mechanism import (
    Code,
    Drawn,
    Mechanism,
    Parameters,
    Setting,
    coded,
)
from tests.faults.search.mechanisms.tampering import mounted
from tests.faults.search.mechanisms.truths import FAILED, RUNNING, STALL_S, any_rank_there, rank_of
from tests.faults.search.vocabulary import (
    BUSY,
    CRASHED,
    DISK_ERROR,
    DISK_FULL,
    DISK_HANGS,
    DISK_SLOW,
    EXCEPTION,
    FILE_TOO_LARGE,
    NO_FILE,
    READ_ONLY,
    SHM_SMALL,
)

if TYPE_CHECKING:
    from tests.faults.search.stage import Stage


def _keeps(setting: Setting) -> list[str]:
    """Every rank saves to this directory, the same on every host."""
    return ["--env", "KEPT=/var/tmp/mntrain-kept"]


KEPT = Path("/var/tmp/mntrain-kept")


def _full(setting: Setting) -> Drawn:
    how = setting.chance.choice(("size=16k", "size=1m,nr_inodes=1", "size=48k"))
    truth = Truth(any_rank_there(setting, DISK_FULL), states=FAILED)
    return Drawn(truth, {"options": how, "words": _keeps(setting)})


def _read_only(setting: Setting) -> Drawn:
    truth = Truth(any_rank_there(setting, READ_ONLY, EXCEPTION), states=FAILED)
    return Drawn(truth, {"options": "ro", "words": _keeps(setting)})


@contextmanager
def _save_to(stage: Stage, case: Case, parameters: Parameters) -> Iterator[None]:
    """Every host has its own file system there; the guilty one's has the options."""
    with (
        mounted(stage, case.other, KEPT, "size=64m"),
        mounted(stage, case.guilty, KEPT, parameters["options"]),
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


def _slow_disk(setting: Setting) -> Code:
    """Every save takes much longer than the steps between two."""
    extra_s = setting.chance.choice((3, 6))
    text = f"""
def save(step, kept=save):
    time.sleep({extra_s})
    kept(step)
"""
    truth = Truth(rank_of(setting, DISK_SLOW), is_harmless=True, within_s=35.0)
    return Code(text, truth)


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
    with mounted(stage, case.guilty, Path("/dev/shm"), "size=64k"):
        phase = {"steps": "step", "before step 1": "join"}[case.moment]
        stage.put(case.layout, case.rank, phase, parameters["code"])
        yield


SAVES: tuple[Moment, ...] = ("save",)

DISKS: tuple[Mechanism, ...] = (
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
    coded("a slow disk", "disk", _slow_disk, slows=True, weight=2),
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
)
