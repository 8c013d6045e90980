"""Faults of a node's surroundings: disks, memory, limits, names, clock and users."""

from __future__ import annotations

import msgspec

from jupyter_mntrain.doctor.check import Case
from jupyter_mntrain.model.records.doctor.machine import NameLookup, ProcessLimits, Processors
from jupyter_mntrain.model.records.node import RdmaPort
from tests.doctor.faults.fault import Fault
from tests.doctor.healthy import GB, changed, with_inventory, with_node, with_path


def _limits(**fields: int | None) -> ProcessLimits:
    return ProcessLimits(**{"open_files": 1 << 20, "core_bytes": 0, **fields})


def _clock(case: Case, ahead_s: float) -> Case:
    return with_node(case, lambda node: msgspec.structs.replace(node, clock_ahead_s=ahead_s))


def _shared(case: Case) -> Case:
    for at in range(len(case.nodes)):
        case = with_path(case, "checkpoints", at, path="/mnt/runs", file_system="nfs4")
    return changed(case, uid=1001)


SURROUNDINGS = (
    Fault(
        "writable-paths",
        "the folder for jobs belongs to root",
        "stops",
        lambda case: with_path(case, "jobs", is_writable=False),
    ),
    Fault(
        "writable-paths",
        "the folder for checkpoints is missing, and cannot be made",
        "stops",
        lambda case: with_path(case, "checkpoints", kind="missing", is_writable=False),
    ),
    Fault(
        "writable-paths",
        "the disk for checkpoints is mounted read-only",
        "stops",
        lambda case: with_path(case, "checkpoints", is_writable=False, is_read_only=True),
    ),
    Fault(
        "disk-space",
        "the quota of its user is used up",
        "stops",
        lambda case: with_path(case, "checkpoints", refused="EDQUOT"),
    ),
    Fault(
        "disk-space",
        "the disk for checkpoints has no inodes left",
        "stops",
        lambda case: with_path(case, "checkpoints", refused="ENOSPC", free_files=0),
    ),
    Fault(
        "disk-space",
        "2 GB are free for checkpoints",
        "slows",
        lambda case: with_path(case, "checkpoints", free_bytes=2 * GB),
    ),
    Fault(
        "disk-space",
        "the disk for jobs is full",
        "stops",
        lambda case: with_path(case, "jobs", free_bytes=0),
    ),
    Fault(
        "host-memory",
        "a program holds nearly all memory",
        "slows",
        lambda case: with_inventory(case, memory_available_bytes=1 << 30),
    ),
    Fault(
        "shared-memory",
        "a container with Docker's 64 MiB of shared memory",
        "slows",
        lambda case: changed(
            with_path(case, "shared memory", total_bytes=64 << 20, free_bytes=64 << 20),
            container="docker",
            first_process="tini",
        ),
    ),
    Fault(
        "shared-memory",
        "what an ended program left fills the shared memory",
        "slows",
        lambda case: with_path(case, "shared memory", free_bytes=1 << 20),
    ),
    Fault(
        "open-files",
        "a hard limit of 1,024 open files",
        "slows",
        lambda case: changed(case, limits=_limits(open_files=1024)),
    ),
    Fault(
        "open-files",
        "ulimit -Sn 300 in the shell that started its agent",
        "slows",
        lambda case: changed(case, limits=_limits(open_files_at_start=300)),
    ),
    Fault(
        "file-size",
        "ulimit -f 8192 in the shell that started its agent",
        "slows",
        lambda case: changed(case, limits=_limits(file_bytes=8 << 20)),
    ),
    Fault(
        "locked-memory",
        "an InfiniBand port, and a limit of 8 MiB of locked memory",
        "stops",
        lambda case: changed(
            with_inventory(
                case,
                rdma_ports=(
                    RdmaPort(device="mlx5_0", number=1, link="InfiniBand", state="ACTIVE"),
                ),
            ),
            limits=_limits(locked_memory_bytes=8 << 20),
        ),
    ),
    Fault(
        "core-files",
        "core files without a limit, and less disk than memory",
        "slows",
        lambda case: changed(
            with_path(case, "jobs", free_bytes=20 * GB), limits=_limits(core_bytes=None)
        ),
    ),
    Fault(
        "first-process",
        "a container that was started without --init, by sleep",
        "slows",
        lambda case: changed(case, container="docker", first_process="sleep"),
    ),
    Fault(
        "first-process",
        "a container whose first process reaps nobody",
        "slows",
        lambda case: changed(case, container="podman", first_process="myapp", zombies=40),
    ),
    Fault(
        "cpu-governor",
        "governor powersave under acpi-cpufreq",
        "slows",
        lambda case: changed(
            case,
            processors=Processors(cores=16.0, governors=("powersave",), driver="acpi-cpufreq"),
        ),
    ),
    Fault("clock", "its clock is 90 s ahead", "slows", lambda case: _clock(case, 90.0)),
    Fault(
        "host-name",
        "/etc/hosts gives its name an address that it had before",
        "slows",
        lambda case: changed(case, own_name=NameLookup(asked="muthur", found=("10.0.0.77",))),
    ),
    Fault(
        "reverse-dns",
        "its name server does not answer",
        "slows",
        lambda case: changed(
            case, peer_names=(NameLookup(asked="10.0.0.1", took_s=4.0, is_over=False),)
        ),
    ),
    Fault("user-id", "a shared folder, and another user id on one node", "slows", _shared),
)
