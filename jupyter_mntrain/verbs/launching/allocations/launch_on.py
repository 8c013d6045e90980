"""Launch on nodes of a scheduler: asks for them, waits, and launches on what it gives."""

from __future__ import annotations

import secrets
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.sources.changes import AllocationChange
from jupyter_mntrain.model.sources.request import NodesRequest
from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.sources.registry import source_named
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.launching.allocations.on_options import (
    IDLE_S,
    nodes_request,
    refuse_with_on,
)
from jupyter_mntrain.verbs.launching.allocations.words import asked_line, granted_line, waiting_line
from jupyter_mntrain.verbs.launching.spec_builder import refuse_unlaunchable
from jupyter_mntrain.verbs.verb import Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes

Launch = Callable[[Context, Namespace], Outcome]


def launch_on(context: Context, args: Namespace, launch: Launch) -> Outcome:
    """Get nodes from the source that the options name, and launch on them. If that fails, or is
    interrupted, before a job has started, the nodes are given back, and nothing is left.

    Args:
        launch: launches on a cluster that is there.

    Raises:
        MntrainError: the job, or the request, cannot be meant; the source refuses; or as a launch.
    """
    refuse_with_on(args)
    request, idle_s = nodes_request(args), IDLE_S if args.idle is None else args.idle
    source = source_named(args.on)
    # What is wrong with the job is said before it has waited in a queue.
    refuse_unlaunchable(context, args)
    if args.dry_run:
        return _rendered(source, request, idle_s)
    # Loaded with what drivers need.
    from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes
    from jupyter_mntrain.sources.allocation_book import AllocationBook

    book, name = AllocationBook(), f"{source.name}-{secrets.token_hex(3)}"
    cluster = context.clusters.get(name, ())
    with closing(AllocatedNodes.ask(cluster, source, request, idle_s)) as nodes:
        try:
            book.add(nodes.note(name))
            context.screen.say(asked_line(source.title, nodes.allocation))
            teller = _Teller(context, nodes)
            nodes.wait(teller.tell, teller.tell_why_it_waits)
            members = args.member or [*request.slots]
            there = Namespace(**{**vars(args), "cluster": name, "member": members})
            return launch(context, there)
        except BaseException as error:
            note = book.of_cluster(name)
            if note is not None and note.jobs:
                raise  # it runs, and ends the allocation when it ends
            is_wrong_job = isinstance(error, MntrainError) and nodes.are_up
            if is_wrong_job and args.idle is not None:
                context.screen.say(_kept_line(context, name, idle_s))
            else:
                _give_back(context, nodes)
                book.forget(name)
            raise


class _Teller:
    """Says what a person waits for, whenever that changes."""

    def __init__(self, context: Context, nodes: AllocatedNodes) -> None:
        self._context = context
        self._nodes = nodes
        self._said: tuple[str, bool] | None = None

    def tell(self, change: AllocationChange) -> None:
        """Say what has changed, but for why it waits."""
        if change.kind == "granted":
            self._context.screen.say(granted_line(self._nodes.allocation))
        elif change.problem is not None and change.kind not in ("waits", "ended"):
            self._context.screen.say(problem_text(change.problem, mark="⚠", style="yellow"))

    def tell_why_it_waits(self) -> None:
        """Say why, unless it was said; also once it is known when it is expected to start."""
        waiting, now_s = self._nodes.allocation.waiting, self._context.clock()
        if waiting is None:
            return
        news = waiting.word, waiting.forecast_s(now_s) is not None
        if news != self._said:
            self._said = news
            self._context.screen.say(waiting_line(waiting, now_s))


def _kept_line(context: Context, cluster: str, idle_s: float) -> Text:
    """How to use nodes on which nothing could be launched: a person wanted to keep them."""
    wait = duration_text(idle_s)
    command = f"{context.program} launch --cluster {cluster}"
    return Text(f"the nodes stay for {wait} after their last job; use them with: {command}")


def _give_back(context: Context, nodes: AllocatedNodes) -> None:
    try:
        nodes.give_back()
    except MntrainError as error:  # the reason why they are given back matters more
        context.screen.say(problem_text(error.problem, mark="⚠", style="yellow"))
    else:
        context.screen.say(Text(f"gave back what {nodes.allocation.id} held", style="dim"))


def _rendered(source: NodeSource, request: NodesRequest, idle_s: float) -> Outcome:
    from jupyter_mntrain.sources.allocated_nodes import agent_command

    text = source.render(request, agent_command("", source.agent_port, idle_s))
    return Outcome(Text(text), {"source": source.name, "submitted": text})
