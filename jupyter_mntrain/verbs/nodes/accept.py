"""``accept``: runs acceptance tests on a cluster: trains, measures and breaks jobs, and judges."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.command_line.needed_packages import INTERRUPTED
from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    PARTS,
    AcceptanceReport,
    Criterion,
    Part,
)
from jupyter_mntrain.model.environment import AGENTS_VARIABLE, CLUSTER_VARIABLE
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import SHARED, write_atomically
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.builtin import built_in
from jupyter_mntrain.show.acceptance.acceptance_table import acceptance_table, criterion_text
from jupyter_mntrain.verbs.launching.allocations.launch_on import on_new_nodes
from jupyter_mntrain.verbs.launching.allocations.on_options import (
    chosen_options,
    on_option,
    refuse_with_on,
)
from jupyter_mntrain.verbs.launching.launch import skip_doctor_option, submitter
from jupyter_mntrain.verbs.new_file import output_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, joined_cluster
from jupyter_mntrain.workload.workload import Workload, from_built_in, from_path

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

FAILED: Final = 1

RECIPE: Final = "quick-check"
SIZES: Final = (1, 2, 4, 8)
MOST_NODES: Final = 1024
LAYERS: Final = 8
"""Layers of the included recipe's model: a pipeline has at most as many stages."""
ON_GPUS: Final = ("model.preset=llama-160m", "data.sequence_length=1024")
"""Model size on GPUs: with a smaller one, kernel launches would dominate."""


class AcceptVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "members",
            nargs="*",
            metavar="HOST[:N[:IFACE]]",
            completes="member",
            help="only these (default: all nodes, with all their idle GPUs)",
        )
        parser.option(
            "--nodes",
            dest="sizes",
            type=typed(_sizes),
            metavar="N,N",
            help="numbers of nodes to time training on; default: 1, 2, 4, 8 and all",
        )
        parser.option(
            "--recipe",
            default=RECIPE,
            metavar="FILE",
            completes="recipe",
            help=f"what is trained; default: {RECIPE}, with a larger model on GPUs",
        )
        parts = f"{', '.join(PARTS[:-1])} and {PARTS[-1]}"
        parser.repeatable(
            "--only", choices=get_args(Part), metavar="PART", help=f"only this part of {parts}"
        )
        parser.flag("--keep", help="keep its jobs and checkpoints for inspection")
        parser.option("--python", metavar="PYTHON", help="interpreter on the nodes, as for launch")
        skip_doctor_option(parser)
        told = "write NAME.json, NAME.html and NAME.ipynb; default: mntrain-accept-TIME"
        output_option(parser, metavar="NAME", help=told)
        on_option(parser)

    def add_chosen_arguments(self, parser: Parser, words: Sequence[str]) -> None:
        chosen_options(parser, words, but=["nodes"])

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.on:
            return self._accept(context, args)
        refuse_with_on(args)
        if args.members or not args.sizes:
            fix = "name no nodes, but how many: --nodes 1,2 asks for two"
            raise SpecError(f"--on {args.on} gets nodes that are not there yet", fix=fix)
        _place(context, args.output)  # said before it waits in a queue
        asked = {"nodes": args.sizes[-1], "name": self.name, "module": None, "target": None}
        wanted = Namespace(**{**vars(args), **asked})
        return on_new_nodes(context, wanted, self._accept, is_job=False, keeps=args.keep)

    def _accept(self, context: Context, args: Namespace) -> Outcome:
        # It loads all that drives a cluster.
        from jupyter_mntrain.cluster.acceptance.acceptance_run import AcceptanceRun

        place = _place(context, args.output)
        cluster = joined_cluster(context, args)
        cluster.refuse_read_only()
        with context.screen.progress() as progress:
            participants = cluster.participants(args.members, progress=progress)
        training = training_spec(context, args.recipe, participants, args.python)
        told: dict[str, Criterion] = {}

        def tell(report: AcceptanceReport) -> None:
            """Print each verdict once it is known."""
            for one in report.criteria:
                is_known = one.judgment != "not judged"
                if is_known and told.get(one.key) != one:
                    told[one.key] = one
                    context.screen.say(criterion_text(one))

        with context.screen.progress() as progress:
            report = AcceptanceRun(
                cluster,
                training,
                sizes=args.sizes or default_sizes(len(participants)),
                parts=tuple(args.only) or PARTS,
                keeps=args.keep,
                environment=_environment(context, args, cluster),
                submitted_by=submitter(context),
                is_checked=not args.skip_doctor,
                on_part=tell,
                progress=progress,
            ).run()
        written = write_reports(report, place)
        names = ", ".join(one.name for one in written)
        code = FAILED if report.has_failed else 0
        return Outcome(
            Group(Text(), acceptance_table(report), Text(f"wrote {names}", "dim")),
            {**msgspec.to_builtins(report), "files": [str(one) for one in written]},
            exit_code=code if report.is_whole else INTERRUPTED,
        )


def _sizes(text: str) -> tuple[int, ...]:
    """Convert ``1,2,4`` to numbers of nodes, ascending.

    Raises:
        ValueError: it is something else.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) < 5 for word in words):
        raise ValueError(f"{text!r} is no list of numbers of nodes, like 1,2,4")
    sizes = sorted({int(word) for word in words})
    if not 1 <= sizes[0] <= sizes[-1] <= MOST_NODES:
        raise ValueError(f"{text!r}: a number of nodes is 1 to {MOST_NODES}")
    return tuple(sizes)


def default_sizes(nodes: int) -> tuple[int, ...]:
    """Return 1, 2, 4 and 8, if there are so many nodes, and the number of all nodes."""
    return tuple(sorted({*(one for one in SIZES if one <= nodes), nodes}))


def training_spec(
    context: Context, target: str, participants: tuple[Participant, ...], python: str | None
) -> JobSpec:
    """Return the training job that is timed and broken, on all nodes.

    Raises:
        SpecError, RecipeError: it is no recipe, or cannot run on these ranks.
    """
    world = sum(one.nproc for one in participants)
    path = context.directory / in_home(target)
    ours = built_in(target)
    if ours is not None and not path.exists():
        settings = _fitting(participants) if target == RECIPE else []
        workload = from_built_in(ours, overrides=settings)
    else:
        workload = from_path(path)
    _refuse_script(workload, target)
    workload.check(world)
    return JobSpec(
        entry=workload.entry,
        files=workload.files,
        participants=participants,
        name="accept",
        python=python,
        set_in=workload.set_in,
    )


def _fitting(participants: tuple[Participant, ...]) -> list[str]:
    """Return settings that fit the included recipe to these ranks.

    That is pipelines between the nodes, and replicas within them if all have as many ranks.
    """
    has_gpus = all(one.gpus for one in participants)
    settings = [*ON_GPUS] if has_gpus else []
    each = {one.nproc for one in participants}
    width = each.pop() if len(each) == 1 else 1
    stages = sum(one.nproc for one in participants) // width
    if width > 1:
        settings += [f"data_parallel.replicas={width}", f"train.batch_size={16 * width}"]
    if stages > LAYERS:
        settings.append(f"model.layers={stages}")
    return settings


def _refuse_script(workload: Workload, target: str) -> None:
    if workload.recipe is None:
        raise SpecError(
            f"{target} is a script: what it would reach is not predicted",
            fix="name a recipe (.toml), or leave --recipe out",
        )


def _environment(context: Context, args: Namespace, cluster: Cluster) -> dict[str, str]:
    """Return an environment in which documented commands use this cluster."""
    environment = dict(context.environment)
    environment[CLUSTER_VARIABLE] = cluster.name
    if args.agent:
        environment[AGENTS_VARIABLE] = ",".join(args.agent)
    return environment


def _place(context: Context, name: str | None) -> Path:
    """Return the path of the reports, without a suffix.

    Raises:
        SpecError: there is no such folder, or a report of that name.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(context.clock()))
    given = name or f"mntrain-accept-{stamp}"
    place = context.directory / in_home(given)
    if not place.parent.is_dir():
        raise SpecError(f"{given}: its folder does not exist", fix="choose another --output")
    for one in _files(place):
        if one.exists():
            raise SpecError(f"{one.name}: already exists", fix="choose another --output")
    return place


def _files(place: Path) -> tuple[Path, Path, Path]:
    json, html, notebook = (Path(f"{place}.{ending}") for ending in ("json", "html", "ipynb"))
    return json, html, notebook


def write_reports(report: AcceptanceReport, place: Path) -> tuple[Path, ...]:
    """Write the report as JSON, page and notebook; return their paths."""
    # nbformat takes a while, and is only needed here.
    from jupyter_mntrain.show.acceptance.acceptance_notebook import acceptance_notebook
    from jupyter_mntrain.show.acceptance.acceptance_page import acceptance_page

    files = json, html, notebook = _files(place)
    write_atomically(json, msgspec.json.format(msgspec.json.encode(report)), mode=SHARED)
    write_atomically(html, acceptance_page(report).encode(), mode=SHARED)
    write_atomically(notebook, acceptance_notebook(report, json.name).encode(), mode=SHARED)
    return files
