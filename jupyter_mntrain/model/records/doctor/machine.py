"""Machine facts: what the doctor reads from a node in addition to its inventory."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.evidence import GpuHealth

MOST_ASKED = 64
MOST_MODULES = 512
MOST_FILES = 500

MOST_VARIABLES = 256
MOST_LOADERS = 8

LOADERS = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that decide what an interpreter loads."""

LONGEST_NAME = 200
ModuleName = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]

PathUse = Literal[
    "jobs",
    "temporary files",
    "shared memory",
    "working directory",
    "script",
    "checkpoints",
    "model",
    "tokenizer",
    "data",
    "chat template",
    "output",
    "input",
]
"""``input``: what a script reads. Unlike data, it may differ between nodes."""
PathKind = Literal["folder", "file", "missing", "unreadable"]


class AskedPath(Record, frozen=True):
    """A path on a node, and what a job does with it.

    Args:
        is_compared: its content is told, as that of some uses is in any case. An older agent does
            not tell it.
    """

    use: PathUse
    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    is_compared: bool = False


class HubName(Record, frozen=True):
    """A model or data set of the Hugging Face hub, like ``meta-llama/Llama-3.2-1B``."""

    use: Literal["model", "data"]
    name: Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+$", max_length=200, examples=["org/model"])]


class MachineQuestion(Record, frozen=True):
    """The doctor's questions about a job's needs on a machine.

    Args:
        paths: of a job; the agent adds its own.
        peers: addresses of the other nodes, whose names are looked up.
        looks_up_names: also that of the node itself; a name server may take seconds.
        python: interpreter of a job, as it asks for it; ``None`` = that of jobs that ask for none.
        patience_s: wait so long for what an interpreter loads, if it has to be asked; ``None`` =
            tell only what is known.
        modules: that a job's script imports, by their first names, and names that it imports from
            them: ``torch.distributed:all_reduce``. An older agent does not look for those.
        hub: what a job's script loads from the Hugging Face hub.
        hub_variables: of a job, which say where that is kept and whether it may be fetched.
        variables: of which is told whether the agent has them, by name.
        loaders: :data:`LOADERS` that the job gives its interpreter.
    """

    paths: Annotated[tuple[AskedPath, ...], Meta(max_length=MOST_ASKED)] = ()
    peers: Annotated[tuple[str, ...], Meta(max_length=MOST_ASKED)] = ()
    looks_up_names: bool = True
    python: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    patience_s: Annotated[float, Meta(ge=0, le=60)] | None = None
    modules: Annotated[tuple[ModuleName, ...], Meta(max_length=MOST_MODULES)] = ()
    hub: Annotated[tuple[HubName, ...], Meta(max_length=MOST_ASKED)] = ()
    hub_variables: dict[str, str] = {}
    variables: Annotated[tuple[ModuleName, ...], Meta(max_length=MOST_VARIABLES)] = ()
    loaders: Annotated[dict[str, str], Meta(max_length=MOST_LOADERS)] = {}


class FoundPath(Record, frozen=True):
    """What exists at a path, as the agent's user sees it.

    Args:
        real_path: without symbolic links; empty if there is nothing.
        is_writable: also for a path that does not exist, if it can be made.
        free_bytes, total_bytes: of its file system, for this user.
        free_files: that can still be made there; ``None`` if it counts none.
        is_read_only: its file system is.
        refused: why not a byte more could be written, by the name of the error, like ``EDQUOT``:
            tried with a file without a name, which leaves nothing.
        file_system: its type, like ``ext4`` or ``nfs4``; empty if unknown.
        asked: the path as it was asked for: ``models:llama`` is another one on each node.
        files: of what has to be the same everywhere, by their names in it: size, and of small ones
            the beginning of their SHA-256; the first 500. Not those whose name begins with a dot.
        trouble: why the agent cannot even tell where it would be; or of a model that is there, why
            the trainer cannot use it.
    """

    use: PathUse
    path: str
    kind: PathKind
    real_path: str = ""
    is_writable: bool = False
    free_bytes: int | None = None
    total_bytes: int | None = None
    free_files: int | None = None
    is_read_only: bool = False
    refused: str = ""
    file_system: str = ""
    asked: str = ""
    files: dict[str, str] = {}
    trouble: Problem | None = None


class AskedScript(Record, frozen=True):
    """A request for a job's script in a folder of the nodes, by its possible names."""

    folder: Annotated[str, Meta(min_length=1, max_length=4096)]
    names: Annotated[
        tuple[
            Annotated[str, Meta(pattern=r"\.pyw?$", max_length=4096, examples=["train.py"])], ...
        ],
        Meta(max_length=2),
    ]


class FoundScript(Record, frozen=True):
    """A script that was found on a node.

    Args:
        name: of those that were asked for; empty if none is there, or can be read.
        beside: other modules and folders in its folder, which it may import.
    """

    name: str = ""
    text: str = ""
    beside: tuple[str, ...] = ()


class FoundInHub(Record, frozen=True):
    """What a node has in its Hugging Face cache.

    Args:
        folder: where it is kept, or would be.
        is_there: a download of it was completed.
        is_offline: jobs may not ask the hub; by which variable.
        has_token: for what only named people may download.
        free_bytes: of that file system.
    """

    use: Literal["model", "data"]
    name: str
    folder: str
    is_there: bool
    is_offline: str = ""
    has_token: bool = False
    free_bytes: int | None = None


class ProcessLimits(Record, frozen=True):
    """Limits of processes that the agent starts; ``None`` = unlimited.

    Args:
        open_files: that a process may raise its own limit to.
        open_files_at_start: that it begins with.
        file_bytes: of one file.
        locked_memory_bytes: memory that stays in place, for RDMA.
        processes: of this user.
    """

    open_files: int | None = None
    open_files_at_start: int | None = None
    file_bytes: int | None = None
    locked_memory_bytes: int | None = None
    core_bytes: int | None = None
    processes: int | None = None


class NameLookup(Record, frozen=True):
    """A lookup of a name or an address, as torch.distributed makes it.

    Args:
        asked: a host name, or an address.
        found: addresses, or the name; empty if there are none.
        is_over: it ended before the doctor lost patience.
    """

    asked: str
    found: tuple[str, ...] = ()
    took_s: float = 0.0
    is_over: bool = True


class Processors(Record, frozen=True):
    """The CPUs that ranks get.

    Args:
        cores: of CPU time, as limits of control groups allow.
        governors: of frequency, that are set; empty if the kernel has none.
        driver: of the frequency; ``powersave`` means different things under each.
    """

    cores: float
    governors: tuple[str, ...] = ()
    driver: str = ""


class MachineFacts(Record, frozen=True):
    """What a node's agent reports to the doctor.

    Args:
        time_s: Unix time there, while it answered.
        user: name of the agent's user.
        container: what it runs in, like ``docker``; empty if in none that is recognized.
        first_process: name of PID 1.
        zombies: ended processes that PID 1 has not reaped.
        own_name: look-up of its own host name; ``None`` if it was not asked for.
        peer_names: look-ups of the peers' addresses.
        environment: variables that training or the network depends on; without secrets.
        gpus: what each GPU says of itself.
        hardware: ``None`` if an older agent tells.
        loaded: what the interpreter of jobs loads; ``None`` while that is unknown.
        lacking: those of the modules that it does not find; ``None`` if it was not asked.
        hub: what was asked for of the Hugging Face hub.
        unset: those of the variables that the agent, and so its jobs, do not have.
    """

    time_s: float
    user: str
    uid: int
    gid: int
    paths: tuple[FoundPath, ...]
    limits: ProcessLimits
    processors: Processors
    own_name: NameLookup | None = None
    peer_names: tuple[NameLookup, ...] = ()
    container: str = ""
    first_process: str = ""
    zombies: int = 0
    environment: dict[str, str] = {}
    gpus: tuple[GpuHealth, ...] = ()
    hardware: Hardware | None = None
    loaded: LoadedSoftware | None = None
    lacking: tuple[str, ...] | None = None
    hub: tuple[FoundInHub, ...] = ()
    unset: tuple[str, ...] = ()
