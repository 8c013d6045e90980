"""Device speeds, a part of ``measure``: how fast the nodes' CPUs and GPUs are."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import error_of
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.plan import DEVICES_LIMIT_S
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding
from jupyter_mntrain.show.tables.device_list import device_list
from jupyter_mntrain.verbs.verb import Context, Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

WORDS = (
    "Of one rank, while all ranks of its node compute. Stored by the agents, until torch, the "
    "device or the limit of CPU time changes; plans use them."
)
DISTURBED = (
    " A disturbed figure is a lower bound: a faster one that was not disturbed is kept instead."
)


def device_options(parser: Parser) -> None:
    """Add the options for devices."""
    parser.option(
        "--python",
        metavar="PYTHON",
        help="interpreter on the nodes whose torch measures the devices, as for launch; "
        "default: the agents' own",
    )


def devices_outcome(
    context: Context, cluster: Cluster, participants: Sequence[Participant], args: Namespace
) -> Outcome:
    """Measure the devices of these participants, and show the results.

    Raises:
        MntrainError: none of them could be measured, and nothing else was: the first one's reason.
    """
    most = f"at most {duration_text(DEVICES_LIMIT_S)} for each node"
    context.screen.say(
        Text(f"measuring devices: {most}, those of one machine in turn", style="dim")
    )
    with context.screen.progress() as progress:
        found = cluster.usage.measure_devices(participants, python=args.python, progress=progress)
    problems = [one.problem for one in found if one.problem is not None]
    if args.devices and len(problems) == len(found):
        raise error_of(problems[0])
    measured = [(one.node, device) for one in found for device in one.devices]
    words = WORDS + (DISTURBED if any(device.disturbed for _, device in measured) else "")
    shown = [
        *([device_list(measured, now_s=time.time())] if measured else []),
        *map(problem_text, problems),
        folding([Text(words, style="dim")]),
    ]
    data = {
        "devices": [{"node": node, **msgspec.to_builtins(device)} for node, device in measured],
        "problems": [msgspec.to_builtins(problem) for problem in problems],
    }
    return Outcome(Group(*shown), data)
