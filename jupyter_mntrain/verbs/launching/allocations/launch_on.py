"""Launch on a scheduler's nodes: asks for them, waits, and launches there."""

from __future__ import annotations

import secrets
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.model.sources.source import Allocation, NodeSource, NodesRequest, Slot
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.sources.registry import source_named, title_of
from jupyter_mntrain.verbs.launching.allocations.no_wait import (
    TAKES_OVER,
    leave_waiting,
    refuse_cell,
)
from jupyter_mntrain.verbs.launching.allocations.on_options import (
    IDLE_S,
    nodes_request,
    refuse_with_on,
)
from jupyter_mntrain.verbs.launching.allocations.progress import AllocationProgress
from jupyter_mntrain.verbs.launching.allocations.words import asked_line
from jupyter_mntrain.verbs.launching.spec_builder import refuse_unlaunchable
from jupyter_mntrain.verbs.verb import Context, Outcome

if TYPE_CHECKING:
    from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes
    from jupyter_mntrain.sources.allocation_book import AllocationBook

Launch = Callable[[Context, Namespace], Outcome]


def launch_on(context: Context, args: Namespace, launch: Launch) -> Outcome:
    """Get nodes from the source that the options name, and launch on them.

    If that fails or is interrupted before a job has started, the nodes are given back.

    Args:
        launch: launches on a cluster that is there.

    Raises:
        MntrainError: the job, or the request, cannot be meant; the source refuses; or as a launch.
    """
    refuse_with_on(args)
    # What is wrong with the job is said before it has waited in a queue.
    refuse_unlaunchable(context, args)
    if args.dry_run:
        text = rendered(args)
        return Outcome(Text(text), {"source": args.on, "submitted": text})
    if args.no_wait:
        return _leave(context, args)
    return on_new_nodes(context, args, launch)


def on_new_nodes(
    context: Context,
    args: Namespace,
    launch: Launch,
    *,
    is_job: bool = True,
    keeps: bool = True,
) -> Outcome:
    """Get nodes from the source that the options name, and do something on them.

    Args:
        launch: does it; nodes without a job that was launched are given back if it fails.
        is_job: whether what it does becomes a job, for which others wait until then.
        keeps: whether they stay afterwards, until nobody uses them.

    Raises:
        MntrainError: the source refuses, or as ``launch``.
    """
    # Loaded with what drivers need.
    from jupyter_mntrain.sources.allocation_book import AllocationBook
    from jupyter_mntrain.sources.awaited_launch import waiting_for

    book, title = AllocationBook(), title_of(args.on)
    name, asked = _asked(context, args, book)
    with closing(asked) as nodes, waiting_for(name):
        try:
            context.screen.say(asked_line(title, nodes.allocation))
            progress = AllocationProgress(context)
            nodes.wait(
                lambda change: progress.tell(nodes.allocation, change),
                lambda: progress.tell_why_it_waits(nodes.allocation),
                context.sleep,
            )
            members = getattr(args, "member", None) or [*nodes.request.slots]
            there = Namespace(**{**vars(args), "cluster": name, "member": members})
            if not is_job:
                book.used(name)
            outcome = launch(context, there)
        except BaseException as error:
            note = book.of_cluster(name)
            if note is not None and note.jobs:
                raise  # it runs, and ends the allocation when it ends
            is_wrong_job = isinstance(error, MntrainError) and nodes.are_up
            if is_wrong_job and args.idle is not None:
                book.used(name)
                context.screen.say(_kept_line(context, name, _idle_s(args)))
            else:
                _give_back(context, nodes)
                book.forget(name)
            raise
        if not keeps:
            _give_back(context, nodes)
            book.forget(name)
        return outcome


def _asked(context: Context, args: Namespace, book: AllocationBook) -> tuple[str, AllocatedNodes]:
    """Return the cluster's name and the nodes: new ones, or those that this process took over."""
    from jupyter_mntrain.sources.allocated_nodes import AllocatedNodes

    source, left = source_named(args.on), context.environment.get(TAKES_OVER)
    known = book.of_cluster(left) if left else None
    if left and known is None:
        cause = f"allocation {left} was canceled"
        raise RefusedError(cause, kind=Kind.NODES_TAKEN, fix="ask for nodes again")
    name = known.cluster if known is not None else f"{source.name}-{secrets.token_hex(3)}"
    cluster = context.clusters.get(name, ())
    if known is not None:
        slots = tuple(Slot(one) for one in known.request.slots)
        there = Allocation(known.id, source.name, "unknown", slots)
        return name, AllocatedNodes(cluster, source, known.request, there)
    nodes = AllocatedNodes.ask(cluster, source, _request(args, source), _idle_s(args))
    try:
        book.add(nodes.note(name))
    except BaseException:
        with closing(nodes):
            _give_back(context, nodes)
        raise
    return name, nodes


def _leave(context: Context, args: Namespace) -> Outcome:
    """Ask for nodes, and let a background process wait for them and launch."""
    from jupyter_mntrain.sources.allocation_book import AllocationBook, follow_remembered

    refuse_cell(context)
    book = AllocationBook()
    name, asked = _asked(context, args, book)
    with closing(asked) as nodes:
        try:
            # A notebook keeps it open: whatever asks for the job later finds its nodes.
            follow_remembered(context.clusters.get(name, ()))
            log = leave_waiting(context, args, name)
        except BaseException:
            _give_back(context, nodes)
            book.forget(name)
            raise
        text = asked_line(title_of(args.on), nodes.allocation, cluster=name)
        hint = f"\nfollow: {context.program} attach {name}; cancel: {context.program} stop {name}"
        data = {"allocation_id": nodes.allocation.id, "cluster": name, "log": str(log)}
        return Outcome(text.append(hint, "dim"), data)


def _kept_line(context: Context, cluster: str, idle_s: float) -> Text:
    """Say how to use nodes that were kept although nothing could be launched on them."""
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


def rendered(args: Namespace) -> str:
    """Return what would be submitted, for people to read.

    Raises:
        SpecError: the request cannot be meant.
    """
    from jupyter_mntrain.sources.allocated_nodes import agent_command

    source = source_named(args.on)
    command = agent_command("", source.agent_port, _idle_s(args))
    return source.render(_request(args, source), command)


def _request(args: Namespace, source: NodeSource) -> NodesRequest:
    """Return the request that the options describe; the source decides on a missing number."""
    request = nodes_request(args)
    if args.nodes:
        return request
    # Loaded with what drivers need.
    from jupyter_mntrain.cluster.loop import LoopThread

    with closing(LoopThread(f"mntrain-{source.name}")) as loop:
        return nodes_request(args, loop.run(source.usual_nodes(request)))


def _idle_s(args: Namespace) -> float:
    return IDLE_S if args.idle is None else float(args.idle)
