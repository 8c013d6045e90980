"""Options of the SLURM backend, and the options of ``sbatch`` that they become."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.sources.options import SourceOption, checked_values
from jupyter_mntrain.model.sources.request import NodesRequest
from jupyter_mntrain.sources.slurm.gpu_forms import asked_gpus

NAME, TITLE = "slurm", "SLURM"

_PASSED_ON = (
    SourceOption("partition", help="the queue: sinfo lists them", example="gpu"),
    SourceOption("account", help="whom the time is charged to", example="my-project"),
    SourceOption("qos", help="quality of service, with limits of its own", example="long"),
    SourceOption("constraint", help="features that every node must have", example="a100&ib"),
    SourceOption("reservation", help="nodes that were set aside for you", example="course"),
    SourceOption(
        "switches",
        help="maximum number of network switches for the nodes, and how long to wait for that",
        example="1@02:00:00",
    ),
    SourceOption("cpus-per-task", help="cores per node", example="32"),
    SourceOption("mem", help="memory per node; 0 = all of it", example="200G"),
)
SBATCH, BEFORE, LEAD, REQUEUE = "sbatch", "before", "save-before-end", "requeue"
JOBID, HERE = "jobid", "here"
YES, NO = "yes", "no"

OPTIONS = (
    *_PASSED_ON,
    SourceOption(
        SBATCH, help="other options, as sbatch takes them", kind="lines", example="--exclusive"
    ),
    SourceOption(
        BEFORE,
        help="a line of shell that runs before the agents start: on the first node; with "
        f"--{JOBID} on the machine where you launch",
        kind="lines",
        example="module load cuda",
    ),
    SourceOption(LEAD, help="seconds before the time limit at which the job saves", example="300"),
    SourceOption(
        REQUEUE,
        help="whether a job that has saved before the time limit is queued again, and goes on",
        kind="choice",
        choices=(YES, NO),
        example=NO,
    ),
    SourceOption(
        JOBID,
        help="use the nodes of this job of yours, such as one of salloc, which goes on afterwards: "
        f"all of them, with its GPUs, unless you say less; {HERE} = the job that this runs in",
        example="4711",
    ),
)

LEAD_S = 180
"""SLURM may signal up to 60 s early; limits are looked at every 30 s. Between lies a save."""

_OURS = {
    "--nodes": "--nodes", "-N": "--nodes",
    "--gres": "--gpus", "--gpus-per-node": "--gpus", "--gpus": "--gpus", "-G": "--gpus",
    "--time": "--time", "-t": "--time",
    "--ntasks": "", "-n": "", "--ntasks-per-node": "", "--array": "", "-a": "", "--wrap": "",
    "--chdir": "", "-D": "", "--output": "", "-o": "", "--signal": f"--{LEAD}",
    "--requeue": "", "--no-requeue": "", "--open-mode": "", "--no-kill": "", "-k": "",
    "--parsable": "", "--test-only": "", "--wait": "", "-W": "",
}  # fmt: skip
"""Options of sbatch that this source sets, and what to use in their place, if anything."""


def sbatch_options(request: NodesRequest) -> tuple[str, ...]:
    """Return the options for ``sbatch``, one per line, including the user's own lines.

    Raises:
        SpecError: a value cannot be meant.
    """
    options = checked_values(TITLE, OPTIONS, request.options)
    return tuple(_lines(msgspec.structs.replace(request, options=options)))


def is_requeued(request: NodesRequest) -> bool:
    """Return whether a job that saved before the time limit continues in another allocation."""
    return request.option(REQUEUE) != NO


def before_lines(request: NodesRequest) -> tuple[str, ...]:
    """Return the user's own shell lines."""
    return request.options.get(BEFORE, ())


def _lines(request: NodesRequest) -> Iterator[str]:
    yield f"--job-name={shlex.quote(request.name)}"
    yield f"--nodes={request.nodes}"
    yield "--ntasks-per-node=1"
    if (gpus := asked_gpus(request.gpus)) is not None:
        yield gpus.option
    if request.time_s is not None:
        yield f"--time={limit_text(request.time_s)}"
    for option in _PASSED_ON:
        if value := request.option(option.name):
            yield f"{option.flag}={shlex.quote(value)}"
    yield f"--signal=B:USR1@{_lead_s(request)}"
    for line in request.options.get(SBATCH, ()):
        _check_own(line)
        yield line.strip()


def limit_text(time_s: float) -> str:
    """Format a time limit for SLURM (days-hours:minutes), rounded up to whole minutes."""
    minutes = max(1, -(-round(time_s) // 60))
    days, hours = divmod(minutes // 60, 24)
    return f"{days}-{hours:02}:{minutes % 60:02}:00"


def _lead_s(request: NodesRequest) -> int:
    text = request.option(LEAD) or str(LEAD_S)
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= 65_535 and len(text) < 6):
        fix = f"write seconds from 1 to 65535, like {LEAD_S}"
        raise SpecError(f"--{LEAD}: {shortened(text)!r} is not a number of seconds", fix=fix)
    return int(text)


def _check_own(line: str) -> None:
    """Check that the user's own options do not undo what the backend relies on."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        cause = f"--{SBATCH}: {shortened(line)!r} cannot be read: {error}"
        raise SpecError(cause, fix="close every quote that it opens") from None
    if not words[0].startswith("-"):
        cause = f"--{SBATCH}: {shortened(line)!r} is not an option of sbatch"
        raise SpecError(cause, fix="begin it with a dash, like --exclusive")
    for word in words:
        name = word.partition("=")[0]
        name = name if name.startswith("--") else name[:2]
        if name in _OURS:
            ours = _OURS[name]
            fix = f"use {ours} of this command" if ours else "leave it out"
            raise SpecError(f"--{SBATCH}: {name} is set already", fix=fix)
