"""Options of the SLURM backend, and the options of ``sbatch`` that they become."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from jupyter_mntrain.model.errors import SpecError, shortened
from jupyter_mntrain.model.sources.source import NodesRequest, SourceOption, checked_values

# GPU formats: how GPUs are requested from SLURM, and how it prints them. Pure.
# Sites want different forms, and their plugins refuse the others: the form that a person writes
# chooses the option. Measured with 22.05 and 24.11: ``--gpus-per-node`` refuses ``gpu:2``, and
# ``--gres`` refuses ``2``; ``--gpus`` spreads GPUs unequally over the nodes, so it is never used.


GPU = "gpu"

_ASKED = re.compile(
    r"(?P<gres>gpu:)?(?:(?P<kind>[A-Za-z][A-Za-z0-9_.-]*):)?(?P<count>[1-9][0-9]{0,3})",
    re.ASCII,
)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_SAID = re.compile(
    r"(?:gres[:/])?(?:(?P<name>[A-Za-z][\w.-]*))?(?:[:/](?P<kind>[A-Za-z][\w.-]*))?"
    r"(?:(?:^|[:=])(?P<count>[0-9]+))?",
    re.ASCII,
)
_OTHERS = frozenset(
    {"mps", "shard", "nic", "bandwidth", "tmpdisk", "cpu", "mem", "node", "billing"}
)
"""Resources that are no GPUs."""


class AskedGpus(NamedTuple):
    """GPUs per node as the user requested them.

    Args:
        kind: type of the GPUs; empty = any.
        is_gres: whether the form is that of ``--gres``.
    """

    number: int
    kind: str = ""
    is_gres: bool = False

    @property
    def option(self) -> str:
        """The option for ``sbatch``."""
        kind = f"{self.kind}:" if self.kind else ""
        return (
            f"--gres=gpu:{kind}{self.number}"
            if self.is_gres
            else f"--gpus-per-node={kind}{self.number}"
        )


def asked_gpus(text: str) -> AskedGpus | None:
    """Parse ``4``, ``gpu:4``, ``gpu:TYPE:4`` or ``TYPE:4``; return ``None`` for no GPUs.

    Raises:
        SpecError: it has another form.
    """
    said = text.strip()
    if said in ("", "0"):
        return None
    match = _ASKED.fullmatch(said)
    if match is None or match["kind"] == GPU:
        raise SpecError(
            f"{shortened(text)!r} is not a number of GPUs per node",
            fix="write it as this site takes it: 4, gpu:4, TYPE:4 or gpu:TYPE:4",
        )
    return AskedGpus(int(match["count"]), match["kind"] or "", is_gres=match["gres"] is not None)


class SaidGpus(NamedTuple):
    """GPUs as SLURM printed them. ``kind`` is empty if it printed no type."""

    kind: str
    number: int


def said_gpus(text: str) -> tuple[SaidGpus, ...]:
    """Parse GPUs that SLURM printed in any of its formats; other resources are left out.

    They are: ``4``, ``a100:4``, ``gpu``, ``gpu:4``, ``gpu:a100:4(S:0-1)``, ``gpu:a100:2(IDX:0,3)``,
    ``gres:gpu:4``, ``gres/gpu:4``, ``gres/gpu:a100=4``, several of them with commas, ``(null)``,
    ``N/A`` and nothing. Where a total stands next to the types, it is the total that is told.
    """
    found = tuple(_items(text))
    totals = tuple(one for one in found if not one.kind)
    return totals or found


def _items(text: str) -> Iterator[SaidGpus]:
    plain = text.strip()
    if plain == "N/A":
        return
    for item in _IN_PARENTHESES.sub("", plain).split(","):
        match = _SAID.fullmatch(item.strip())
        if match is None or not item.strip():
            continue
        name, kind, count = match["name"], match["kind"], match["count"]
        if name == GPU:
            yield SaidGpus(kind or "", 1 if count is None else int(count))
        elif count is not None and kind is None and name not in _OTHERS:
            yield SaidGpus(name or "", int(count))


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
