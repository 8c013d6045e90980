"""Facts: everything that the doctor asks about one machine, read within about a second."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import os
import pwd
import re
import resource
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Final

from jupyter_mntrain.agent.machine.devices.limits import cores
from jupyter_mntrain.agent.machine.hardware import (
    gpu_health,
    read_adapter_numa_nodes,
    read_errors,
    read_firmware,
    read_gpu_driver,
    read_gpu_setups,
    read_kernel_faults,
    read_network_cards,
)
from jupyter_mntrain.agent.machine.kernel_log import KMSG
from jupyter_mntrain.agent.machine.linux import SHARED_MEMORY
from jupyter_mntrain.launch.checkpoints.places import RUNS
from jupyter_mntrain.launch.files.hub_names import folder_in_cache, hub_home, is_set
from jupyter_mntrain.launch.files.large_places import place_of
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import (
    MOST_FILES,
    AskedPath,
    AskedScript,
    FoundInHub,
    FoundPath,
    FoundScript,
    HubName,
    MachineFacts,
    MachineQuestion,
    NameLookup,
    PathKind,
    PathUse,
    ProcessLimits,
    Processors,
)
from jupyter_mntrain.model.text.secrets import is_secret, redacted
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.telemetry.gpus import GpuReader
from jupyter_mntrain.telemetry.kernel_files import kernel_text

# Contents: what a model or data set consists of, to be compared with the other nodes' copies.


HASHED_BYTES = 2**20
"""Files of a model or data set up to this size are compared by their content, larger ones by
size."""
HASHED_IN_ALL_BYTES = 64 * 2**20
"""So much of them is read before a launch, in 0.1 s, and no more."""


def contents(path: Path) -> dict[str, str]:
    """Return the size of each file, and of small ones the beginning of their SHA-256.

    Large ones are weights or data, of which reading all would take minutes. Programs that download
    keep their own notes in hidden files, which differ everywhere.
    """
    named = [path] if path.is_file() else list(islice(_files(path), MOST_FILES))
    found: dict[str, str] = {}
    left = HASHED_IN_ALL_BYTES
    for one in named:
        name = path.name if one == path else str(one.relative_to(path))
        try:
            stat = one.stat()
            is_read = stat.st_size <= min(HASHED_BYTES, left)
            digest = _digest(one, stat.st_size, stat.st_mtime_ns) if is_read else ""
        except OSError:
            found[name] = "unreadable"
            continue
        left -= stat.st_size if is_read else 0
        found[name] = f"{stat.st_size} {digest}".rstrip()
    return found


def _files(folder: Path) -> Iterator[Path]:
    """Yield files in an order that is the same on every machine."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where) / name for name in sorted(files) if not name.startswith("."))


@lru_cache(maxsize=4 * MOST_FILES)
def _digest(path: Path, _size: int, _changed_ns: int) -> str:
    """Hash a file. Cached while its size and time are unchanged, because launches ask often."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


# Environment: variables of the agent, and so of its jobs, that training or the network depends on.
#
# Nothing else leaves the machine: a variable may hold a secret.


_TOLD = re.compile(
    r"(NCCL|GLOO|TORCH|PYTORCH|TORCHELASTIC|CUDA|OMP|MKL|UCX|TP)_\w+"
    r"|PYTHON(PATH|HOME|NOUSERSITE|STARTUP)|LD_(LIBRARY_PATH|PRELOAD)|TMPDIR"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|ENDPOINT|DATASETS_CACHE)|TRANSFORMERS_(CACHE|OFFLINE)"
    r"|(https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY"
    r"|MASTER_(ADDR|PORT)|WORLD_SIZE|RANK|LOCAL_RANK|NODE_RANK"
)


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the doctor compares, without passwords of proxies."""
    return {
        name: redacted(value)
        for name, value in sorted(environment.items())
        if _TOLD.fullmatch(name) and not is_secret(name, redacted(value))
    }


# Hub: what this node keeps of the Hugging Face hub, and whether its jobs may fetch more.
#
# Asks nobody: it looks where huggingface_hub and datasets would look. They read their variables
# when they are imported, and a job may have others than the agent.
# https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables


_FORBIDS: Final = {
    "model": ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    "data": ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"),
}


def find_in_hub(asked: HubName, environment: Mapping[str, str]) -> FoundInHub:
    """Look for a model or data set in the cache of the Hugging Face hub.

    Args:
        environment: of the job.
    """
    home = hub_home(environment)
    kind = "models" if asked.use == "model" else "datasets"
    folder = folder_in_cache(asked.name, kind, environment)
    forbids = (name for name in _FORBIDS[asked.use] if is_set(environment, name))
    token = in_home(environment.get("HF_TOKEN_PATH") or home / "token")
    return FoundInHub(
        use=asked.use,
        name=asked.name,
        folder=str(folder),
        is_there=_is_whole(folder) or (asked.use == "data" and _is_prepared(asked, home)),
        is_offline=next(forbids, ""),
        has_token=bool(environment.get("HF_TOKEN")) or token.is_file(),
        free_bytes=_free(folder.parent),
    )


def _is_whole(folder: Path) -> bool:
    """Return whether a snapshot is complete: files appear in it only after their download."""
    try:
        is_begun = any(folder.glob("blobs/*.incomplete"))
        return not is_begun and any(one.exists() for one in folder.glob("snapshots/*/*"))
    except OSError:
        return False


def _is_prepared(asked: HubName, home: Path) -> bool:
    """Return whether the datasets library has prepared the data, so that no download is needed."""
    return any((home / "datasets").glob(f"{asked.name.replace('/', '___').lower()}/*"))


def _free(path: Path) -> int | None:
    there = next((one for one in (path, *path.parents) if one.exists()), path)
    try:
        found = os.statvfs(there)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


# Names: looks up this host's name and the peers' addresses, as torch.distributed does.
#
# Its store and Gloo ask for the name of every peer that connects. Where the name server does not
# answer, that takes seconds each time.


PATIENCE_S = 4.0
"""Looking up a name is given up after this."""


def look_up_own_name() -> NameLookup:
    """Look up this machine's own name. Blocks for at most ``doctor.name_timeout_s``."""
    name = socket.gethostname()
    return _all([(name, partial(_addresses, name))])[0]


def look_up_address(peers: Sequence[str]) -> tuple[NameLookup, ...]:
    """Look up the names of all addresses at once. What is not an address gets none."""
    return _all([(one, partial(_name, one)) for one in peers if _is_address(one)])


def _addresses(name: str) -> tuple[str, ...]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(one[4][0]) for one in found))


def _name(address: str) -> tuple[str, ...]:
    return (socket.gethostbyaddr(address)[0],)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _all(asked: Sequence[tuple[str, Callable[[], tuple[str, ...]]]]) -> tuple[NameLookup, ...]:
    """Run all lookups at once. A lookup cannot be canceled: one that hangs keeps its thread."""
    found: dict[int, NameLookup] = {}

    def look(at: int, what: str, ask: Callable[[], tuple[str, ...]]) -> None:
        begun = time.monotonic()
        try:
            answer = ask()
        except OSError:
            answer = ()
        found[at] = NameLookup(asked=what, found=answer, took_s=time.monotonic() - begun)

    threads = [
        threading.Thread(target=look, args=(at, *one), daemon=True) for at, one in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return tuple(
        found.get(at) or NameLookup(asked=what, took_s=PATIENCE_S, is_over=False)
        for at, (what, _) in enumerate(asked)
    )


# Paths: what is there for the agent's user, on which file system, with how much room.


WRITTEN: Final[tuple[PathUse, ...]] = ("jobs", "checkpoints", "temporary files", "output")

TRIED_BYTES: Final = 65536
"""Written to see whether a quota, or a file system without inodes, lets it be."""

_NO_TRIAL: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL})
"""File systems that make no files without a name, as NFS: nothing is known."""

COMPARED: Final[tuple[PathUse, ...]] = ("model", "data", "chat template", "script")
"""What has to be the same on all nodes."""


def find_path(asked: AskedPath, types: Mapping[str, str]) -> FoundPath:
    """Examine a path. Blocks if its file system does.

    Args:
        types: of file systems, by mount point.
    """
    try:
        path = place_of(asked.path)
        real = path.resolve()
        kind = "unreadable" if str(path).startswith("~") else _kind(path)  # nobody's home
    except MntrainError as error:  # a root that is not here
        return FoundPath(
            use=asked.use,
            path=asked.path,
            kind="unreadable",
            asked=asked.path,
            trouble=error.problem,
        )
    except (OSError, RuntimeError):  # a loop of links, a name that is too long
        return FoundPath(use=asked.use, path=asked.path, kind="unreadable", asked=asked.path)
    there = next((one for one in (real, *real.parents) if one.exists()), real)
    free = total = files = None
    is_known, is_read_only = True, False
    try:
        found = os.statvfs(there)
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        files = found.f_favail if found.f_files else None
        is_read_only = bool(found.f_flag & os.ST_RDONLY)
    except OSError:
        is_known = False
    is_compared = asked.is_compared or asked.use in COMPARED
    is_writable = is_known and not is_read_only and os.access(there, os.W_OK)
    return FoundPath(
        use=asked.use,
        path=str(path),
        kind=kind,
        real_path=str(real) if kind in ("folder", "file") else "",
        is_writable=is_writable,
        free_bytes=free,
        total_bytes=total,
        free_files=files,
        is_read_only=is_read_only,
        refused=refused(there) if is_writable and asked.use in WRITTEN else "",
        file_system=_type_of(there, types),
        asked=asked.path,
        files=contents(real) if is_compared and kind in ("folder", "file") else {},
        trouble=_unusable(real, asked) if kind in ("folder", "file") else None,
    )


def _unusable(real: Path, asked: AskedPath) -> Problem | None:
    """Return why this node's trainer would refuse the path."""
    if asked.use not in ("model", "tokenizer"):
        return None
    # An agent at rest has not loaded recipes.
    from jupyter_mntrain.families.directories import (
        lacking_tokenizer,
        lacking_weights,
        refuse_directory,
    )

    try:
        if asked.use == "tokenizer":  # of an older driver it is the file itself
            names = [one.name for one in real.iterdir()] if real.is_dir() else None
            lacking = None if names is None else lacking_tokenizer(names, asked.path)
        else:
            refuse_directory(real, asked.path)
            lacking = lacking_weights(real, asked.path)
    except MntrainError as error:
        return error.problem
    return lacking.problem if lacking else None


def refused(folder: Path) -> str:
    """Return the name of the error with which a folder refuses to store more; empty if it accepts
    it, or if that cannot be tried. The test file has no name, and is gone once closed.
    """
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None or not folder.is_dir():
        return ""
    try:
        file = os.open(folder, flag | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(file, 0, TRIED_BYTES)
        finally:
            os.close(file)
    except OSError as error:
        number = error.errno or 0
        return "" if number in _NO_TRIAL else errno.errorcode.get(number, str(number))
    return ""


def mounts(proc: Path) -> dict[str, str]:
    """Return the file system type of each mount point; empty if the kernel does not tell."""
    try:
        lines = (proc / "self" / "mounts").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    words = [line.split() for line in lines]
    # A space in a mount point is written \040. What was mounted last hides the others.
    return {one[1].replace("\\040", " "): one[2] for one in words if len(one) > 2}


def _type_of(path: Path, types: Mapping[str, str]) -> str:
    return next((types[str(one)] for one in (path, *path.parents) if str(one) in types), "")


def _kind(path: Path) -> PathKind:
    if path.is_dir():
        return "folder" if os.access(path, os.R_OK | os.X_OK) else "unreadable"
    if path.exists():
        return "file" if os.access(path, os.R_OK) else "unreadable"
    return "missing"


# Limits of the processes that this agent starts.


def read_limits() -> ProcessLimits:
    """Read resource limits. Ranks inherit the agent's."""
    return ProcessLimits(
        open_files=_hard(resource.RLIMIT_NOFILE),
        open_files_at_start=_soft(resource.RLIMIT_NOFILE),
        file_bytes=_soft(resource.RLIMIT_FSIZE),
        locked_memory_bytes=_soft(resource.RLIMIT_MEMLOCK),
        core_bytes=_soft(resource.RLIMIT_CORE),
        processes=_soft(resource.RLIMIT_NPROC),
    )


def _hard(which: int) -> int | None:
    return _limit(resource.getrlimit(which)[1])


def _soft(which: int) -> int | None:
    return _limit(resource.getrlimit(which)[0])


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


# Script there: a job's script that is not sent to this node, since it lies in a folder of it.


MOST_BYTES = 1 << 20
"""Of a script: what people write by hand is far smaller."""

MOST_BESIDE = 2000


def read_script_there(asked: AskedScript) -> FoundScript:
    """Read the first of these files that is readable. Blocks."""
    folder = in_home(asked.folder)
    for name in asked.names:
        path = folder / name
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            text = path.read_text()
            beside = {one.name for at in (folder, path.parent) for one in at.iterdir()}
        except (OSError, UnicodeDecodeError):
            continue
        return FoundScript(name=name, text=text, beside=tuple(sorted(beside))[:MOST_BESIDE])
    return FoundScript()


# Surroundings: the container that the agent runs in, its first process, and the processors.


_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman"}
_GROUPS = re.compile(r"(docker|kubepods|podman|lxc|containerd|garden)")


def container(root: Path, proc: Path) -> str:
    """Return the kind of container that this process runs in; empty if none is recognized."""
    for mark, name in _MARKS.items():
        if (root / mark).exists():
            return name
    found = _GROUPS.search(kernel_text(proc / "1" / "cgroup"))
    return {"kubepods": "kubernetes"}.get(found[1], found[1]) if found else ""


def first_process(proc: Path) -> str:
    """Return the name of PID 1, which has to reap processes that lose their parent."""
    return kernel_text(proc / "1" / "comm")


def unreaped(proc: Path) -> int:
    """Return the number of ended processes that PID 1 has not reaped."""
    # "4711 (a name) Z 1 …": the name may have spaces and parentheses.
    states = (kernel_text(one).rpartition(")")[2].split()[:2] for one in proc.glob("[0-9]*/stat"))
    return sum(state == ["Z", "1"] for state in states)


def read_processors(cores: float, sysfs: Path) -> Processors:
    """Read how the processors choose their frequency."""
    frequencies = sorted((sysfs / "devices" / "system" / "cpu").glob("cpu[0-9]*/cpufreq"))
    governors = {kernel_text(one / "scaling_governor") for one in frequencies} - {""}
    driver = next(filter(None, (kernel_text(one / "scaling_driver") for one in frequencies)), "")
    return Processors(cores=cores, governors=tuple(sorted(governors)), driver=driver)


# Reading of machine facts: all that the doctor asks of one node, within about a second.


@dataclass(frozen=True)
class MachineReader:
    """Reads what the doctor checks on this machine.

    Args:
        jobs: directory of the agent's jobs.
        gpus: asks its GPUs.
        loaded: tells what an interpreter of jobs loads, after so many seconds at most
            (``None`` = if that is known), with a job's own loaders.
        proc, sysfs, kmsg, root: where the kernel shows itself, and the root of other files.
        environment: of the agent, and so of its jobs.
    """

    jobs: Path
    gpus: GpuReader
    loaded: Callable[[str | None, float | None, dict[str, str]], LoadedSoftware | None] = (
        lambda *_: None
    )
    proc: Path = Path("/proc")
    sysfs: Path = Path("/sys")
    kmsg: Path = KMSG
    root: Path = Path("/")
    environment: Mapping[str, str] | None = None

    def read(self, question: MachineQuestion) -> MachineFacts:
        """Read all facts. Blocks for disks, for name servers (``doctor.name_timeout_s``), and as
        the question requires.
        """
        errors = read_errors(self.sysfs)
        environment = self.environment or os.environ
        of_job = {**environment, **question.hub_variables}
        own = look_up_own_name() if question.looks_up_names else None
        peers = look_up_address(question.peers)
        loaded = self.loaded(question.python, question.patience_s, question.loaders)
        uid = os.getuid()
        return MachineFacts(
            time_s=time.time(),
            user=_user(uid),
            uid=uid,
            gid=os.getgid(),
            paths=self._paths(question),
            limits=read_limits(),
            processors=read_processors(cores(), self.sysfs),
            own_name=own,
            peer_names=peers,
            container=container(self.root, self.proc),
            first_process=first_process(self.proc),
            zombies=unreaped(self.proc),
            environment=shown_environment(environment),
            unset=tuple(one for one in question.variables if one not in environment),
            hub=tuple(find_in_hub(asked, of_job) for asked in question.hub),
            loaded=loaded,
            gpus=gpu_health(self.gpus.nvml, [one.index for one in self.gpus.read()]),
            hardware=self._hardware(errors),
        )

    def _hardware(self, errors: Mapping[str, int]) -> Hardware:
        """Read the hardware's state. Comes last, when the GPUs had time for new errors."""
        nvml, indices = self.gpus.nvml, self.gpus.indices
        cards = read_network_cards(self.sysfs, errors)
        return Hardware(
            gpu_driver=read_gpu_driver(self.gpus.error, self.sysfs, self.proc),
            gpus=read_gpu_setups(nvml, indices, self.sysfs),
            kernel=read_kernel_faults(self.kmsg),
            cards=cards,
            adapter_numa_nodes=read_adapter_numa_nodes(self.sysfs),
            firmware=read_firmware(nvml, indices, [one.name for one in cards], self.sysfs),
            up_s=time.monotonic(),
        )

    def _paths(self, question: MachineQuestion) -> tuple[FoundPath, ...]:
        own = (
            AskedPath(use="jobs", path=str(self.jobs)),
            AskedPath(use="checkpoints", path=str(self.jobs.parent / RUNS)),
            AskedPath(use="temporary files", path=tempfile.gettempdir()),
            AskedPath(use="shared memory", path=SHARED_MEMORY),
        )
        types = mounts(self.proc)
        return tuple(find_path(asked, types) for asked in (*own, *question.paths))


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container may have no name for it
        return str(uid)
