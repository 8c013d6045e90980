"""torchrun command: renders a participant's command and environment, also for dry runs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import PurePosixPath

import msgspec

from jupyter_mntrain.launch.checkpoints.places import checkpoints_of_run
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import (
    ATTEMPT_VARIABLE,
    CHECKPOINT_VARIABLE,
    FIRST_WORLD_SIZE_VARIABLE,
    HEARTBEAT_VARIABLE,
    JOB_VARIABLE,
    METRICS_VARIABLE,
    NODE_VARIABLE,
    ON_NAN_VARIABLE,
    RDMA_CHOICES,
    RECORDERS,
    RESUME_FROM_VARIABLE,
    RESUME_STEP_VARIABLE,
    RUN_ATTEMPT_VARIABLE,
    RUN_VARIABLE,
    SAVED_STEP_VARIABLE,
    TIMEOUT_VARIABLE,
    WHOLE_WORLD_SIZE_VARIABLE,
    heartbeat_of,
)
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.restarts import before_attempt
from jupyter_mntrain.model.lifecycle.running_changes import earlier_changes, with_changes
from jupyter_mntrain.model.records.job import Attempt, Earlier, JobSpec, Placement
from jupyter_mntrain.model.records.node import Gpu

OUTPUTS = "outputs"
"""Folder for results, in the folder that the job's files are in."""
OUTPUTS_MARK = "{out}"
"""In arguments and variables: the folder for results, on each node."""

AUTO = "--auto"
"""Option of the trainer: what was chosen for the job in place of ``auto``."""

RENDEZVOUS_TIMEOUT_S = tunables.seconds("launch.rendezvous_timeout_s")

RECORDED_CALLS = 2000
"""Torch's flight recorder keeps this many calls of torch.distributed per rank: its own default,
which some versions lack. Each takes under 1 KB."""


class NodeCommand(Record, frozen=True):
    """The command of one node: ``argv``, run in ``directory`` with ``environment`` added."""

    node: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    directory: str


def torchrun_command(
    spec: JobSpec,
    attempt: Attempt,
    placement: Placement,
    *,
    job_id: JobId,
    python: str,
    directory: str,
    cpu_count: int,
    gpus: Collection[Gpu] = (),
    of_node: Collection[str] = (),
    has_safe_path: bool = True,
) -> NodeCommand:
    """Render one participant's torchrun.

    Static rendezvous with explicit node ranks: with c10d, no node hosts the store if the address
    belongs to a secondary interface, and ranks follow a string sort of addresses (measured).
    ``--max-restarts=0``: restarting only one node's ranks leaves stale keys behind
    (pytorch#135712); mntrain starts a whole new attempt instead.

    Args:
        python: interpreter on that node.
        directory: attempt directory on that node, with files in ``work/``, logs in ``ranks/`` and
            metrics in ``metrics/``.
        cpu_count: cores the node may use, shared among its ranks.
        gpus: that the node has; ranks get the placement's by their UUIDs.
        of_node: names of the agent's own variables: they win over defaults of NCCL and torch.
        has_safe_path: whether that Python knows ``-P``, as it does since 3.11.
    """
    root = PurePosixPath(directory)
    spec = _with_outputs(spec, str(root / "work" / OUTPUTS))
    argv = (
        python,
        # By default Python's own modules are looked for first in the folder that it runs in.
        *(("-P",) if has_safe_path else ()),
        "-m",
        "torch.distributed.run",
        f"--nnodes={len(attempt.placements)}",
        f"--node-rank={placement.node_rank}",
        f"--nproc-per-node={placement.nproc}",
        f"--master-addr={attempt.master_address}",
        f"--master-port={attempt.master_port}",
        "--max-restarts=0",
        f"--rdzv-id={job_id}",
        f"--rdzv-conf=timeout={round(RENDEZVOUS_TIMEOUT_S)}",
        f"--log-dir={root / 'ranks'}",
        "--tee=3",
        *spec.torchrun_arguments,
        *_entry(spec, attempt, root / "work"),
    )
    environment = {
        **network_environment(placement, spec.environment, of_node),
        **launcher_environment(attempt, placement),
        **_of_backends(
            {*spec.environment, *of_node}, placement, root, gpus, runs_trainer=spec.runs_trainer
        ),
        **thread_environment(cpu_count, placement.nproc),
        **_heartbeat(spec.environment.get(TIMEOUT_VARIABLE, ""), of_node),
        "PYTHONUNBUFFERED": "1",
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": f"[{placement.node} rank ${{rank}}] ",
        **spec.environment,
        **_history(spec, attempt),
        **_run_environment(spec, attempt, job_id, root.parents[1]),
        JOB_VARIABLE: job_id,
        ATTEMPT_VARIABLE: str(attempt.number),
        NODE_VARIABLE: placement.node,
        METRICS_VARIABLE: str(root / "metrics"),
    }
    return NodeCommand(placement.node, argv, environment, spec.workdir or str(root / "work"))


def wants_outputs(spec: JobSpec) -> bool:
    """Whether a job refers to the folder for its results."""
    return any(OUTPUTS_MARK in one for one in (*spec.entry, *spec.environment.values()))


def _with_outputs(spec: JobSpec, folder: str) -> JobSpec:
    return msgspec.structs.replace(
        spec,
        entry=tuple(word.replace(OUTPUTS_MARK, folder) for word in spec.entry),
        environment={
            name: value.replace(OUTPUTS_MARK, folder) for name, value in spec.environment.items()
        },
    )


def thread_environment(cpu_count: int, ranks: int) -> dict[str, str]:
    """Return the variable that shares a node's cores among its ranks."""
    return {"OMP_NUM_THREADS": str(max(1, cpu_count // ranks))}


def _heartbeat(timeout: str, own: Collection[str]) -> dict[str, str]:
    """Return the heartbeat variable that matches a script's ``--collective-timeout``; the trainer
    sets its own.
    """
    try:
        found = {HEARTBEAT_VARIABLE: heartbeat_of(float(timeout))}
    except (ValueError, OverflowError):  # none; or a person's own, which the rank's hook judges
        return {}
    return {} if HEARTBEAT_VARIABLE in own else found


def _of_backends(
    own: Collection[str],
    placement: Placement,
    root: PurePosixPath,
    gpus: Collection[Gpu],
    *,
    runs_trainer: bool,
) -> dict[str, str]:
    return {
        **recorder_environment(own, root, has_gpus=bool(placement.gpus)),
        **gpu_environment(own, placement, gpus),
        **(_allocator(own, placement, gpus) if runs_trainer else {}),
    }


def _entry(spec: JobSpec, attempt: Attempt, work: PurePosixPath) -> tuple[str, ...]:
    """Return the command that ranks run, with the settings that were changed in earlier attempts.

    In a folder of the nodes, the job's own files have absolute paths.
    """
    spec = with_changes(spec, earlier_changes(attempt))
    chosen = tuple(word for one in spec.chosen.items() for word in (AUTO, "=".join(one)))
    if spec.workdir is None:
        return (*spec.entry, *chosen)
    at = 2 if spec.runs_trainer else 0
    is_sent = spec.entry[at] in spec.files
    return (
        *spec.entry[:at],
        str(work / spec.entry[at]) if is_sent else spec.entry[at],
        *spec.entry[at + 1 :],
        *chosen,
    )


def recorder_environment(
    own: Collection[str], root: PurePosixPath, *, has_gpus: bool
) -> dict[str, str]:
    """Return the variables that enable torch's flight recorder and NCCL's log of its start and
    networks, to explain stalls and errors.

    torch also writes the recorder, as a pickle, when a collective times out. torch warns of its
    older names, so they are not set: it knows the new ones since 2.9. NCCL's lines go into a file
    for each rank, which the supervisor bounds and copies warnings from.

    Args:
        own: names of variables that are set already, maybe under torch's older names
            (``FlightRecorder.hpp``, ``ProcessGroupNCCL.hpp``).
        has_gpus: without, NCCL is not used.
    """
    wanted: dict[tuple[str, ...], str] = {
        ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"): str(RECORDED_CALLS),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT",): "1",
        ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"): str(
            root / "metrics" / RECORDERS
        ),
    }
    if has_gpus or "NCCL_DEBUG" in own:  # the log that went quiet first is known by its times
        wanted[("NCCL_DEBUG_TIMESTAMP_LEVELS",)] = "WARN,INFO"
    if has_gpus and "NCCL_DEBUG" not in own:
        wanted[("NCCL_DEBUG",)] = "INFO"
        wanted[("NCCL_DEBUG_SUBSYS",)] = "INIT,NET"
        wanted[("NCCL_DEBUG_FILE",)] = str(root / "nccl" / "%h.%p.log")
    return {
        name: value
        for (name, *older), value in wanted.items()
        if not any(one in own for one in (name, *older))
    }


def gpu_environment(
    own: Collection[str], placement: Placement, gpus: Iterable[Gpu]
) -> dict[str, str]:
    """Return the variables that give torchrun its GPUs, and set up their queues.

    By UUID: CUDA counts only what its container or control group lets it see, and so its indices
    may be other cards' than NVML's. A card that tells no UUID is given by its index.
    """
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    return {
        # Number GPUs like NVML; by default CUDA puts the fastest card first.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(
            uuids.get(index) or str(index) for index in placement.gpus
        ),
        **(_queues(own) if placement.gpus else {}),
    }


def _queues(own: Collection[str]) -> dict[str, str]:
    """Return the variable that gives a GPU as many hardware queues as CUDA allows, not 8.

    Otherwise a receive that waits could block another stream that shares its queue.
    """
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    return {} if name in own else {name: "32"}


def _allocator(own: Collection[str], placement: Placement, gpus: Iterable[Gpu]) -> dict[str, str]:
    """Return the variables that let torch's CUDA allocator grow its segments, so that gaps between
    tensors can be used.

    Nothing if the job configures the allocator itself, or where the driver would refuse it. Of the
    trainer only: a script may share tensors with other processes, which a container, or Ubuntu,
    refuses then (pytorch#165685), or capture CUDA graphs on several GPUs, which hang
    (pytorch#158029). Both names, as torch 2.9 ignores the newer (pytorch#183387); the older alone
    would be warned of.
    """
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    maps = all(gpu.maps_memory for gpu in gpus if gpu.index in placement.gpus)
    if any(name in own for name in (*names, "PYTORCH_HIP_ALLOC_CONF")):
        return {}
    if not placement.gpus or not maps:
        return {}
    return dict.fromkeys(names, "expandable_segments:True")


def _history(spec: JobSpec, attempt: Attempt) -> dict[str, str]:
    """Return the variables from which a script derives the learning rate and data of a later
    attempt.
    """
    earlier = before_attempt(spec, attempt) or Earlier(world_size=attempt.world_size)
    told = {
        FIRST_WORLD_SIZE_VARIABLE: earlier.world_size,
        WHOLE_WORLD_SIZE_VARIABLE: spec.world_size,
        SAVED_STEP_VARIABLE: earlier.saved_step,
        ON_NAN_VARIABLE: spec.on_nan,
    }
    return {name: str(value) for name, value in told.items() if value is not None}


def _run_environment(
    spec: JobSpec, attempt: Attempt, job_id: JobId, jobs: PurePosixPath
) -> dict[str, str]:
    """Return the variables for the run, its checkpoints, and the checkpoint to resume from.

    The last are for a branch that has no checkpoint of its own yet, otherwise only for the first
    attempt: later ones resume from the newest checkpoint.
    """
    run, origin = spec.run_of(job_id), spec.origin
    told = {
        RUN_VARIABLE: run,
        RUN_ATTEMPT_VARIABLE: str(spec.run_attempt(attempt.number)),
        CHECKPOINT_VARIABLE: str(checkpoints_of_run(jobs, run)),
    }
    if origin is None or (attempt.earlier is not None and not origin.is_branch):
        return told
    if origin.step is not None:
        told[RESUME_STEP_VARIABLE] = str(origin.step)
    if origin.is_branch:
        other = checkpoints_of_run(jobs, origin.run or run)
        told[RESUME_FROM_VARIABLE] = origin.path or str(other)
    return told


def launcher_environment(attempt: Attempt, placement: Placement) -> dict[str, str]:
    """Return variables that other launchers set and scripts rely on, in addition to torchrun's.

    DeepSpeed's launcher sets ``CROSS_RANK``, ``CROSS_SIZE`` and ``LOCAL_SIZE``
    (``launcher/launch.py``), by which scripts know that they were launched; shell scripts around
    torchrun, such as Megatron's, set ``NNODES`` and ``NODE_RANK``. ``accelerate launch --cpu`` sets
    ``ACCELERATE_USE_CPU``: without it, Accelerate (and transformers' Trainer) treats each rank
    without a GPU as a job of its own.
    """
    nodes, node = str(len(attempt.placements)), str(placement.node_rank)
    common = {
        "NNODES": nodes,
        "NODE_RANK": node,
        "CROSS_SIZE": nodes,
        "CROSS_RANK": node,
        "LOCAL_SIZE": str(placement.nproc),
    }
    return common if placement.gpus else {**common, "ACCELERATE_USE_CPU": "true"}


def network_environment(
    placement: Placement, own: Collection[str] = (), of_node: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables that bind every backend to the placement's interface, and NCCL to its
    InfiniBand or RoCE ports.

    NCCL matches a *prefix* unless the name starts with ``=``: ``eth1`` would also match ``eth10``
    (NCCL user guide, NCCL_SOCKET_IFNAME). Gloo and TensorPipe take the bare name.

    Args:
        own: names of the job's own variables. ``NCCL_IB_DISABLE`` would undo its ``NCCL_IB_HCA``.
        of_node: names of the node's. They say how it uses InfiniBand, not whether the job does.
    """
    name = placement.interface
    sockets = {
        "NCCL_SOCKET_IFNAME": f"={name}",
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
    }
    if not RDMA_CHOICES.isdisjoint(own):
        return sockets
    if placement.rdma_devices and not RDMA_CHOICES.isdisjoint(of_node):
        return sockets
    if placement.rdma_devices:
        ports = {"NCCL_IB_HCA": "=" + ",".join(placement.rdma_devices)}
        index = None if "NCCL_IB_GID_INDEX" in of_node else placement.rdma_gid_index
        return sockets | ports | ({} if index is None else {"NCCL_IB_GID_INDEX": str(index)})
    return {**sockets, "NCCL_IB_DISABLE": "1"}
