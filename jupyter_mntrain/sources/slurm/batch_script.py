"""Batch script: the script that runs in an allocation, written to be read by people. Pure."""

from __future__ import annotations

import shlex
import sys
from pathlib import PurePath

from jupyter_mntrain.model.quantities import agreeing
from jupyter_mntrain.model.sources.slots import (
    AGAIN,
    ALLOCATION_FILE,
    ASK_FILE,
    RELAY_FILE,
    SAVE_FILE,
)
from jupyter_mntrain.model.sources.source import (
    PYTHON,
    SECRETS,
    SLOT,
    STATE,
    NodesRequest,
    SlotCommand,
    slot_name,
)
from jupyter_mntrain.sources.slurm.slurm_options import (
    NAME,
    asked_gpus,
    before_lines,
    is_requeued,
    sbatch_options,
)

SCRIPT, LOG = "job.sh", "slurm.log"
RELAY_LOG = "status-relay.log"
SECRETS_FOLDER, HOSTS, GRANTS = "secrets", "hosts", "grants"
"""In the allocation's folder, next to what agents write: host of each slot, number of grants."""

_NOTES = (SAVE_FILE, AGAIN, ASK_FILE, RELAY_FILE, ALLOCATION_FILE)
"""Of an earlier grant."""

RELAY = "jupyter_mntrain.sources.slurm.status_relay"
_WISH = f"command -v scontrol > /dev/null && echo {AGAIN}"
"""Without scontrol on the nodes nobody can requeue the job: then it only saves."""

_BATCH_SCRIPT = """\
#!/bin/bash
# {nodes} for mntrain: an agent runs on each, and starts there what mntrain launches.
# To end it: scancel NUMBER, with the number that squeue shows for it.
{options}
#SBATCH --chdir={folder}
#SBATCH --output={log}
# A requeued job goes on where it was, and a lost node takes no other with it.
#SBATCH --open-mode=append --requeue --no-kill

{before}cd {folder} || exit  # whatever these lines did
echo "$((${{SLURM_RESTART_COUNT:-0}} + 1))" > {grants}
rm -rf {hosts} {notes} && mkdir {hosts}

agent() {{  # on every node
    slot={prefix}$SLURM_NODEID
    echo "$SLURMD_NODENAME" > {hosts}/"$slot"
    exec {command}
}}
export -f agent

# Before the time limit SLURM signals this script alone; agents see the file, save, and end.
trap '{{ {wish}; }} > {save}.new; mv {save}.new {save}' USR1
trap 'touch {save}' USR2
# Everything here is told to end at once; agents then ask why, so what answers ends after them.
trap 'told=1' TERM

# Agents learn from it which node was lost, and why they are told to end.
(trap '' TERM; exec {relay} 2> {relay_log}) &
relay=$!

# An agent starts many processes: it is bound to no core.
srun --export=ALL --cpu-bind=none --kill-on-bad-exit=0 --no-kill bash -c agent &
agents=$!
# Each signal ends a wait.
while kill -0 "$agents" 2> /dev/null; do wait "$agents"; done
wait "$agents"; code=$?
kill -KILL "$relay" 2> /dev/null; rm -f {relay_file}
if [ -e {again} ]; then  # a job has saved, and goes on when its turn comes again
    exec scontrol requeue "$SLURM_JOB_ID"
fi
[ -n "$told" ] || rm -rf {secrets}  # who was told to end may be granted nodes again
exit $code
"""


def batch_script(request: NodesRequest, command: SlotCommand, folder: PurePath) -> str:
    """Render the whole batch script.

    Args:
        folder: of the allocation, on a file system that all nodes share.

    Raises:
        SpecError: an option's value cannot be meant.
    """
    return _BATCH_SCRIPT.format(
        nodes=f"{request.nodes} {agreeing(request.slots, 'node', 'nodes')}",
        options="\n".join(f"#SBATCH {line}" for line in sbatch_options(request)),
        folder=shlex.quote(str(folder)),
        log=LOG,
        before=lines_before(request, command),
        grants=GRANTS,
        hosts=HOSTS,
        secrets=SECRETS_FOLDER,
        save=SAVE_FILE,
        again=AGAIN,
        wish=_WISH if is_requeued(request) else "true",
        notes=" ".join(_NOTES),
        relay=shlex.join((sys.executable, "-m", RELAY, str(folder), str(request.nodes))),
        relay_file=RELAY_FILE,
        relay_log=RELAY_LOG,
        prefix=slot_name(NAME, 0).removesuffix("0"),
        command=agent_words(command, folder),
    )


def agent_words(command: SlotCommand, folder: PurePath) -> str:
    """Return the command that a script's function ``agent`` runs in a slot."""
    facts = {
        SLOT: '"$slot"',
        SECRETS: shlex.quote(str(folder / SECRETS_FOLDER)),
        STATE: shlex.quote(str(folder)),
        PYTHON: shlex.quote(sys.executable),  # nodes have it at the same path
    }
    return " ".join(command.filled(facts, shlex.quote))


def lines_before(request: NodesRequest, command: SlotCommand) -> str:
    """Return the user's own shell lines, and exports of the agent's variables."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in command.environment.items()]
    return "".join(f"{line}\n" for line in (*before_lines(request), *exports, ""))


# Step script: runs next to the user's own job, and starts agents in it. Pure.


HELD, CODE, ALIVE = "held", "code", "alive"
"""In the allocation's folder: of which job it is, until it is given back; how its step ended; what
the script touches as long as it runs.
"""

_STEP_SCRIPT = """\
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
    return _STEP_SCRIPT.format(
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
