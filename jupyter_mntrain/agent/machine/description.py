"""Description of this machine for a report: its GPUs, and the packages of the ranks' Python.

Asked for by a person; what the agent needs itself is in the inventory.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess

from jupyter_mntrain.agent.machine.software.versions import ask_python
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.node import MachineDescription

SMI_TIMEOUT_S = tunables.seconds("agent.nvidia_smi_timeout_s")
SMI_BYTES = 512 * 2**10
"""Maximum size of what nvidia-smi -q says, for a report: a card says 20 KiB."""

_PACKAGES = """
import importlib.metadata as m, json
print(json.dumps({str(d.metadata["Name"]): str(d.version) for d in m.distributions()}))
"""


def describe_machine(python: str) -> MachineDescription:
    """Describe this machine for a report. Blocks for seconds.

    Args:
        python: interpreter that ranks run under.
    """
    try:
        packages = ask_python(python, _PACKAGES)
    except SpecError as error:
        packages = {"": error.cause}
    return MachineDescription(
        system=f"{platform.system()} {platform.release()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
        packages=dict(sorted(packages.items(), key=lambda one: one[0].lower())),
        nvidia_smi=_nvidia_smi(),
    )


def _nvidia_smi() -> str:
    """Return what ``nvidia-smi -q`` prints, cut at its limit, or why there is nothing."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "nvidia-smi is not installed"
    try:
        # A card that hangs makes it hang, too.
        done = subprocess.run(
            [program, "-q"], check=False, capture_output=True, timeout=SMI_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"nvidia-smi failed: {error}"
    said = (done.stdout + done.stderr).decode(errors="replace")
    return said if len(said) <= SMI_BYTES else f"{said[:SMI_BYTES]}\n… cut"
