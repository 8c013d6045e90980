"""Batch script: what runs in an allocation, written to be read by a person. Pure."""

from __future__ import annotations

import shlex
import sys
from pathlib import PurePath

from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.sources.request import (
    PYTHON,
    SECRETS,
    SLOT,
    STATE,
    NodesRequest,
    SlotCommand,
    slot_name,
)
from jupyter_mntrain.model.sources.slots import SAVE_FILE
from jupyter_mntrain.sources.slurm.slurm_options import NAME, before_lines, sbatch_options

SCRIPT, LOG = "job.sh", "slurm.log"
SECRETS_FOLDER, HOSTS, GRANTS = "secrets", "hosts", "grants"
"""In the allocation's folder, beside what agents write: host of each slot, number of grants."""

_SCRIPT = """\
#!/bin/bash
# {nodes} for mntrain: an agent runs on each, and starts there what mntrain launches.
# To end it: scancel NUMBER, with the number that squeue shows for it.
{options}
#SBATCH --chdir={folder}
#SBATCH --output={log}
# A requeued job goes on where it was, and a lost node takes no other with it.
#SBATCH --open-mode=append --requeue --no-kill

{before}echo "$((${{SLURM_RESTART_COUNT:-0}} + 1))" > {grants}
rm -rf {hosts} {save} && mkdir {hosts}

agent() {{  # on every node
    slot={prefix}$SLURM_NODEID
    echo "$SLURMD_NODENAME" > {hosts}/"$slot"
    exec {command}
}}
export -f agent

# Before the time limit SLURM signals this script alone; agents see the file, and save.
trap 'touch {save}' USR1

# An agent starts many processes: it is bound to no core.
srun --export=ALL --cpu-bind=none --kill-on-bad-exit=0 --no-kill bash -c agent &
agents=$!
# Each signal ends a wait.
while kill -0 "$agents" 2> /dev/null; do wait "$agents"; done
wait "$agents"
"""


def batch_script(request: NodesRequest, command: SlotCommand, folder: PurePath) -> str:
    """The whole script.

    Args:
        folder: of the allocation, on a file system that all nodes share.

    Raises:
        SpecError: an option's value cannot be meant.
    """
    own = before_lines(request)
    exports = [f"export {name}={shlex.quote(value)}" for name, value in command.environment.items()]
    facts = {
        SLOT: '"$slot"',
        SECRETS: shlex.quote(str(folder / SECRETS_FOLDER)),
        STATE: shlex.quote(str(folder)),
        PYTHON: shlex.quote(sys.executable),  # nodes have it at the same path
    }
    return _SCRIPT.format(
        nodes=f"{request.nodes} {agreeing(request.slots, 'node', 'nodes')}",
        options="\n".join(f"#SBATCH {line}" for line in sbatch_options(request)),
        folder=shlex.quote(str(folder)),
        log=LOG,
        before="".join(f"{line}\n" for line in (*own, *exports, "")),
        grants=GRANTS,
        hosts=HOSTS,
        save=SAVE_FILE,
        prefix=slot_name(NAME, 0).removesuffix("0"),
        command=" ".join(command.filled(facts, shlex.quote)),
    )
