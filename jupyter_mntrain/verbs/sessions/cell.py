"""``cell``: runs a cell on the ranks of a session."""

from __future__ import annotations

import ast
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_mntrain.cluster.rank_session import CellEvent, RankSession, Unheard, Waiting
from jupyter_mntrain.command_line.parser import Parser, typed
from jupyter_mntrain.model.errors import JobNotFoundError, MntrainError, NodeError, SpecError
from jupyter_mntrain.model.quantities import numbered
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.model.records.session import Asked, Done, Lost, Shown, State, Text
from jupyter_mntrain.model.text.foreign import shown_line, visible
from jupyter_mntrain.verbs.sessions.printing import CellPrinter, failure_lines
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, all_jobs, named_job

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job


class CellVerb(Verb):
    takes_cell = True

    def add_arguments(self, parser: Parser) -> None:
        rank_option(parser, "that run it; default: all")
        session_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        code = sys.stdin.read() if context.cell is None else context.cell
        refuse_bad_syntax(code)
        job = find_session(context, args, args.session)
        session = job.session()
        ranks = args.ranks
        if ranks is None and code.strip() == "%debug":
            ranks = (failed_rank(session),)
        elif ranks is None:
            ranks = tuple(session.ranks)
        try:
            done = print_events(context, session, session.run(code, ranks), ranks)
        except MntrainError as error:
            if job.state in TERMINAL:
                again = f"{context.program} session restart {job.id}"
                context.screen.say(f"the session is over; start it again: {again}")
            elif isinstance(error, NodeError):
                end = f"{context.program} session interrupt"
                context.screen.say(f"the cell may go on on the other nodes; to end it: {end}")
            raise
        return cell_outcome(job, done)


def failed_rank(session: RankSession) -> int:
    """Return the first rank that the newest cell with an error has failed on: prompts of all at
    once would help nobody.

    Raises:
        SpecError: no cell has failed.
    """
    states = [one for one in session.states().values() if isinstance(one, State)]
    newest = max((one.failed_cell for one in states), default=0)
    if not newest:
        raise SpecError("no cell of this session has failed", fix="run %debug after one that did")
    return min(one.rank for one in states if one.failed_cell == newest)


def rank_option(parser: Parser, what: str) -> None:
    """Add the option that names ranks.

    Args:
        what: they are for.
    """
    parser.option(
        "--rank",
        "-r",
        dest="ranks",
        type=typed(parse_ranks),
        metavar="RANKS",
        help=f"ranks, like 0,2 or 0-3, {what}",
    )


def session_option(parser: Parser) -> None:
    parser.option(
        "--session",
        metavar="JOB",
        completes="job",
        help="the session's job, or how its id begins; default: the newest that runs",
    )


def parse_ranks(text: str) -> tuple[int, ...]:
    """Parse ``0,2`` or ``0-3,6``.

    Raises:
        ValueError: it is neither.
    """
    ranks: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 9:
            raise ValueError(f"{text!r} names no ranks; write them like 0,2 or 0-3")
        ranks += range(int(first), int(last if dash else first) + 1)
    return tuple(dict.fromkeys(ranks))


def refuse_bad_syntax(code: str) -> None:
    """Refuse a cell that no rank could run.

    Raises:
        SpecError: with the line.
    """
    from IPython.core.inputtransformer2 import TransformerManager

    try:
        text = TransformerManager().transform_cell(code)
        compile(text, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = "" if line is None else f"line {line} of the cell: "
        what = getattr(error, "msg", None) or str(error)
        source = (getattr(error, "text", None) or "").strip()
        raise SpecError(
            f"{place}{what}" + (f": {shown_line(source)}" if source else ""),
            fix="correct it; no rank has run anything of the cell",
        ) from None
    if not code.strip():
        raise SpecError("the cell is empty", fix="write what the ranks are to run")


def find_session(
    context: Context, args: Namespace, named: str | None, *, may_be_over: bool = False
) -> Job:
    """Return the named session, or the newest that runs.

    Args:
        may_be_over: the newest of all if none runs.

    Raises:
        JobNotFoundError: there is none.
    """
    if named:
        return named_job(context, args, named)
    views = [one for one in all_jobs(context, args) if one.spec.is_session]
    running = [one for one in views if one.runs_cells]
    for view in running or (views if may_be_over else ()):
        return context.cluster(args).job(view.job_id)
    fix = f"start one with {context.program} session start"
    if views:
        fix += f", or the newest that ended with {context.program} session restart"
    raise JobNotFoundError("no session runs", fix=fix)


def print_events(
    context: Context,
    session: RankSession,
    events: Iterator[CellEvent],
    ranks: Iterable[int],
) -> dict[int, Done]:
    """Print what a cell writes until it has ended on all ranks; return how, by rank.

    ``KeyboardInterrupt`` interrupts the cell on all ranks; a second one leaves it running.
    """
    chosen = tuple(ranks)
    printer = CellPrinter(context.screen, chosen)
    done: dict[int, Done] = {}
    seen = dict.fromkeys(chosen, 0)
    is_interrupted = False
    while True:
        try:
            for event in events:
                if isinstance(event, Text | Shown | Asked | Lost | Done):
                    # Ranks without a cell form the group again; what was followed comes again.
                    if event.rank not in chosen or event.number <= seen[event.rank]:
                        continue
                    seen[event.rank] = event.number
                _print_event(context, session, printer, event)
                if isinstance(event, Done):
                    done[event.rank] = event
            break
        except KeyboardInterrupt:
            if is_interrupted:
                raise
            is_interrupted = True
            _interrupt(context, session, printer)
            events = session.follow()
    printer.close()
    failed = {rank: one for rank, one in done.items() if one.end == "error"}
    if failed:
        printer.traceback(failed[min(failed)])
        for line in failure_lines(failed):
            printer.say(line)
    return done


def _print_event(
    context: Context, session: RankSession, printer: CellPrinter, event: CellEvent
) -> None:
    if isinstance(event, Text):
        printer.text(event)
    elif isinstance(event, Shown):
        printer.shown(event)
    elif isinstance(event, Lost):
        printer.lost(event)
    elif isinstance(event, Done):
        printer.ended(event)
    elif isinstance(event, Waiting):
        how = "interrupt this cell"
        printer.say(f"{event}. To end it: {how}, or {context.program} session interrupt")
    elif isinstance(event, Unheard):
        printer.say(str(event))
    elif isinstance(event, Asked):
        try:
            answer = context.screen.ask(f"[rank {event.rank}] {visible(event.prompt)}")
        except EOFError:
            printer.say(f"rank {event.rank} asks for a line, and nobody can answer here")
            _interrupt(context, session, printer)
        else:
            session.answer(event.rank, answer)


def _interrupt(context: Context, session: RankSession, printer: CellPrinter) -> None:
    if left := session.interrupt():
        printer.say(goes_on_text(context, left))


def goes_on_text(context: Context, ranks: Sequence[int]) -> str:
    """Return where an interrupted cell has not ended, and how to end it."""
    again = f"{context.program} session restart"
    return f"it has not ended on {numbered('rank', ranks)} yet; to start all ranks again: {again}"


def cell_outcome(job: Job, done: dict[int, Done]) -> Outcome:
    """Return how a cell has ended on each rank.

    Raises:
        MntrainError: it failed or was interrupted on one.
    """
    bad = [one for _, one in sorted(done.items()) if one.end in ("error", "interrupted")]
    if bad:
        first = next((one for one in bad if one.end == "error"), bad[0])
        same = [one.rank for one in bad if (one.end, one.error) == (first.end, first.error)]
        named = numbered("rank", same)
        if first.end == "interrupted":
            raise MntrainError(
                f"the cell was interrupted on {named}",
                fix="the session goes on, with its variables",
            )
        raise MntrainError(
            f"{first.error} on {named}: {shown_line(first.message)}",
            fix="see the traceback; the session goes on, with its variables",
        )
    ended: list[dict[str, Any]] = [
        {"rank": rank, "end": one.end, "took_s": one.took_s} for rank, one in sorted(done.items())
    ]
    return Outcome(data={"job_id": job.id, "cells": ended})
