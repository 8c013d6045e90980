"""Step script: runs next to the user's own job, and starts agents in it. Pure."""

from __future__ import annotations

import shlex
import sys
from pathlib import PurePath

from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand, slot_name
from jupyter_mntrain.model.sources.slots import RELAY_FILE
from jupyter_mntrain.sources.slurm.batch_script import (
    HOSTS,
    RELAY,
    RELAY_LOG,
    SECRETS_FOLDER,
    agent_words,
    lines_before,
)
from jupyter_mntrain.sources.slurm.gpu_forms import asked_gpus
from jupyter_mntrain.sources.slurm.slurm_options import NAME

HELD, CODE, ALIVE = "held", "code", "alive"
"""In the allocation's folder: of which job it is, until it is given back; how its step ended; what
the script touches as long as it runs.
"""

_SCRIPT = """\
#!/bin/bash
# {nodes} of job {job} for mntrain: an agent runs on each, and starts there what mntrain launches.
# All of it is one step of that job, {name}; the job itself stays whoever's it is.
cd {folder} || exit

ended() {{  # however that comes about
    code=$?
    kill -KILL "$beats" $relay 2> /dev/null
    cd {folder} || return
    rm -rf {relay_file} {secrets}
    echo "$code" > {code}
}}
told='' relay=''
trap ended EXIT
# A batch job that ends tells everything here at once; agents then ask why, so what answers ends
# after them.
trap 'told=1' TERM HUP
(trap '' TERM HUP; while kill -0 $$; do touch -c {alive}; sleep 2; done) 2> /dev/null &
beats=$!; disown "$beats"

{before}cd {folder} || exit  # whatever these lines did
mkdir {hosts}

agent() {{  # on every node
    [ -e {held} ] || exit  # it was given back before it began
    slot={prefix}$SLURM_NODEID
    echo "$SLURMD_NODENAME" > {hosts}/"$slot"
    exec {command}
}}
export -f agent

# Agents learn from it that the job ends, and why.
(trap '' TERM HUP; exec {relay} 2> {relay_log}) &
relay=$!; disown "$relay"

# Steps share nodes only where they say so; before 20.11 SLURM did not know the option, and all did.
overlap=$(srun --help | grep -o -m 1 -e --overlap)
# An agent starts many processes: it is bound to no core.
srun --jobid={job} $overlap --job-name={name} {options} \\
    --export=ALL --cpu-bind=none --kill-on-bad-exit=0 --no-kill bash -c agent &
agents=$!
patience={patience}  # seconds for agents to end once they are told to
while kill -0 "$agents" 2> /dev/null && [ "$patience" -gt 0 ]; do
    sleep 1
    [ -e {held} ] && [ -z "$told" ] || patience=$((patience - 1))
done
kill "$agents" 2> /dev/null  # ends the step, and nothing else
# Each signal ends a wait.
while kill -0 "$agents" 2> /dev/null; do wait "$agents"; done
wait "$agents"; exit
"""


def step_script(
    request: NodesRequest, command: SlotCommand, folder: PurePath, job: str, patience_s: float
) -> str:
    """Render the whole step script.

    Args:
        folder: of the allocation, on a file system that all nodes share; the step has its name.
        job: the number of the person's own.
        patience_s: for agents to end once they are told to.

    Raises:
        SpecError: an option's value cannot be meant.
    """
    gpus = asked_gpus(request.gpus)
    options = [f"--nodes={request.nodes}", "--ntasks-per-node=1"]
    options += [] if gpus is None else [gpus.option]
    relay = (sys.executable, "-m", RELAY, str(folder), str(request.nodes))
    return _SCRIPT.format(
        nodes=f"{request.nodes} {agreeing(request.slots, 'node', 'nodes')}",
        job=job,
        name=shlex.quote(folder.name),
        folder=shlex.quote(str(folder)),
        before=lines_before(request, command),
        hosts=HOSTS,
        held=HELD,
        code=CODE,
        alive=ALIVE,
        prefix=slot_name(NAME, 0).removesuffix("0"),
        command=agent_words(command, folder),
        relay=shlex.join((*relay, step_id(job, folder.name))),
        relay_log=RELAY_LOG,
        relay_file=RELAY_FILE,
        secrets=SECRETS_FOLDER,
        options=shlex.join(options),
        patience=f"{patience_s:.0f}",
    )


def step_id(job: str, name: str) -> str:
    """Return the id of an allocation that is a step of the user's job. No SLURM command mistakes it
    for a job number.
    """
    return f"{job}/{name}"
