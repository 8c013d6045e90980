"""Waiting allocations: what one waits for whose driver does not tell, and how it is given back."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Group
from rich.text import Text

from jupyter_mntrain.model.sources.slots import told_of, write_allocation
from jupyter_mntrain.model.sources.source import NodeSource
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.sources.allocation_book import AllocationBook, AllocationNote
from jupyter_mntrain.sources.registry import source_named, title_of
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.launching.allocations.words import granted_line, waiting_line
from jupyter_mntrain.verbs.verb import Outcome

T = TypeVar("T")


def waiting_outcome(context: Context, args: Namespace) -> Outcome | None:
    """How the allocation is that a command means, as long as no job has started in it."""
    note = AllocationBook().of_cluster(args.cluster) if args.cluster else None
    if note is None or note.jobs:
        return None
    now = _asked(note, lambda source: source.look(note.id, note.request))
    nodes = formats.plural(note.request.nodes, "node")
    lines = [Text(f"{note.cluster}: {nodes} of {title_of(now.source)}, job {now.id}, {now.state}")]
    if now.waiting is not None:
        lines.append(waiting_line(now.waiting, context.clock()))
    elif now.problem is not None:
        lines.append(problem_text(now.problem, mark="⚠", style="yellow"))
    elif now.state == "running":
        lines.append(granted_line(now))
    if not now.is_over:
        lines.append(Text(f"cancel: {context.program} stop {note.cluster}", "dim"))
    data = {"cluster": note.cluster, "allocation": msgspec.to_builtins(now), "state": now.state}
    return Outcome(Group(*lines), data)


def stopped_waiting(context: Context, args: Namespace) -> Outcome | None:
    """Give back the allocation of the named job, if it holds no nodes; ``None`` where there is a
    job whose end is to be recorded still.
    """
    book = AllocationBook()
    note = book.of_cluster(args.cluster) if args.cluster and args.job else None
    if note is None:
        return None
    now = _asked(note, lambda source: source.look(note.id, note.request))
    if now.is_over or now.state == "unknown" or (note.jobs and now.state != "pending"):
        return None
    if note.directory:
        told = msgspec.structs.replace(told_of(now), is_canceled=True)
        write_allocation(Path(note.directory), told)
    _asked(note, lambda source: source.give_back(note.id, note.request))
    line = Text(f"{note.cluster}: job {note.id} of {title_of(now.source)} was canceled")
    if note.jobs:
        context.screen.say(line)
        return None
    book.forget(note.cluster)
    return Outcome(line, {"cluster": note.cluster, "state": "canceled"})


def _asked(note: AllocationNote, ask: Callable[[NodeSource], Awaitable[T]]) -> T:
    # Loaded with what drivers need.
    from jupyter_mntrain.cluster.loop import LoopThread

    source = source_named(note.request.source)

    async def asked() -> T:
        try:
            return await ask(source)
        finally:
            await source.close()

    with closing(LoopThread(f"mntrain-{source.name}")) as loop:
        return loop.run(asked())
