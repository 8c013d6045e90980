"""Reading of machine facts: all that the doctor asks of one node, within about a second."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_mntrain.agent.failure.gathering import SHARED_MEMORY
from jupyter_mntrain.agent.failure.kernel_log import KMSG
from jupyter_mntrain.agent.machine.devices.cpu_limit import cores
from jupyter_mntrain.agent.machine.facts.environment import shown_environment
from jupyter_mntrain.agent.machine.facts.hardware.firmware import read_firmware
from jupyter_mntrain.agent.machine.facts.hardware.gpu_setup import (
    read_gpu_driver,
    read_gpu_setups,
)
from jupyter_mntrain.agent.machine.facts.hardware.kernel_faults import read_kernel_faults
from jupyter_mntrain.agent.machine.facts.hardware.network_cards import (
    read_adapter_numa_nodes,
    read_errors,
    read_network_cards,
)
from jupyter_mntrain.agent.machine.facts.hub import find_in_hub
from jupyter_mntrain.agent.machine.facts.names import look_up_address, look_up_own_name
from jupyter_mntrain.agent.machine.facts.paths import find_path, mounts
from jupyter_mntrain.agent.machine.facts.process_limits import read_limits
from jupyter_mntrain.agent.machine.facts.surroundings import (
    container,
    first_process,
    read_processors,
    unreaped,
)
from jupyter_mntrain.agent.machine.gpu_health import gpu_health
from jupyter_mntrain.launch.checkpoints.places import RUNS
from jupyter_mntrain.model.records.doctor.hardware import Hardware
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import (
    AskedPath,
    FoundPath,
    MachineFacts,
    MachineQuestion,
)
from jupyter_mntrain.telemetry.gpus import GpuReader


@dataclass(frozen=True)
class MachineReader:
    """Reads what the doctor wants to know of this machine.

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
        """Read it all. Blocks: on disks, on name servers for ``doctor.name_timeout_s``, and as the
        question asks.
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
        """Read it last, when the cards had time for new errors."""
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
