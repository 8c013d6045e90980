"""Job status: problems first, then state, figures, ranks and links."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from jupyter_mntrain.model.failure.headline import Told, what_hurts
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TERMINAL, JobView, Restart
from jupyter_mntrain.model.records.metrics import ComparedTransfer
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import count, percent
from jupyter_mntrain.show.problems import problem_text, when_words
from jupyter_mntrain.show.tables._plain import folding, plain_table
from jupyter_mntrain.show.tables.plans.off_plan import predicted_line
from jupyter_mntrain.show.tables.ranks.rank_progress import ranks_progress
from jupyter_mntrain.show.tables.ranks.rank_table import RankTable, state_text

if TYPE_CHECKING:
    from jupyter_mntrain.metrics.summary import (
        EventMark,
        JobEvent,
        JobNumbers,
        JobSummary,
        LinkSummary,
        WrittenText,
    )

DETAIL_LINES = 12
"""Last lines of a traceback."""

PART_WORDS: Final = {"data": "waiting for data"}
"""Words for parts of a window, where they differ from the names."""

UNEVEN = 1.2
"""Step times that vary by more are shown."""

MOST_OVER = 3
"""Newest slowdowns, stalls and warnings that are over and still listed."""

MISSING: Final = {
    "step_s": "step time",
    "tokens_per_s": "tok/s",
    "mfu": "MFU",
    "bubble": "bubble",
    "loss": "loss",
    "busiest_link": "links",
}
"""Labels of figures that can be unknown."""

MOST_LINKS = 16
"""Directions that fit on a screen."""

HOW_TO_REPORT = (
    "The script reports no steps. For throughput, loss and MFU, three lines (docs/own_scripts.md): "
    "from jupyter_mntrain import Recorder; with Recorder() as recorder: "
    "recorder.step(tokens=…, loss=…)"
)

SAMPLE_CHARACTERS = 500
"""More than fits on a line."""


def status_view(
    summary: JobSummary,
    view: JobView | None = None,
    *,
    program: str = "mntrain",
    with_detail: bool = False,
    every_rank: bool = False,
    now_s: float | None = None,
    silences: Mapping[str, Problem] = MappingProxyType({}),
) -> RenderableType:
    """Render the status of a job.

    Args:
        view: adds why the job was stopped, and processes that could not be killed.
        with_detail: show the end of the traceback, too.
        every_rank: a row per rank, and all links, however many there are.
        now_s: Unix time, for the duration of a stall and the time at which the job is done.
        silences: why nodes cannot be reached, by their names.
    """
    now_s = time.time() if now_s is None else now_s
    theirs_s = now_s + summary.clock_ahead_s
    parts: list[RenderableType] = []
    for told in what_hurts(summary):
        parts += _told_lines(told, summary, program, theirs_s, with_detail=with_detail)
    parts += [silence_line(node, silences.get(node)) for node in silent_nodes(summary)]
    parts += [over_line(mark) for mark in summary.marks if mark.end_s is not None][-MOST_OVER:]
    parts.append(state_line(summary))
    if summary.elapsed_s is not None:
        parts.append(times_line(summary, summary.elapsed_s, now_s))
    parts += [Text(f"  {changed_words(one)}") for one in summary.events if one.kind == "changed"]
    if summary.restart is not None:
        parts.append(restart_line(summary.restart, theirs_s))
    doing = ranks_progress(summary.ranks)
    if doing is not None and summary.restart is None:
        parts.append(Text(f"  {doing}"))
    parts.extend(_endings(view) if view else ())
    if any(rank.step for rank in summary.ranks):
        parts += [Text(), _numbers(summary), folding(_number_notes(summary))]
    hint = f"{program} status {summary.job_id} --ranks"
    parts += [Text(), RankTable(summary, every=every_rank, hint=hint)]
    if view is not None and reports_nothing(summary, view):
        parts.append(Text(HOW_TO_REPORT, "dim"))
    is_measured = any(link.bytes_per_s is not None for link in summary.links)
    makes_none = view is not None and (view.spec.is_session or reports_nothing(summary, view))
    if summary.links and (summary.step or (makes_none and is_measured)):
        most = None if every_rank else MOST_LINKS
        parts += [Text(), *_links(summary.links, now_s, most), *_link_notes(summary.links, program)]
    if summary.sample is not None:
        parts += [Text(), sample_line(summary.sample)]
    return Group(*parts)


def reports_nothing(summary: JobSummary, view: JobView) -> bool:
    """Whether the job runs a user's script, none of whose ranks reports its steps."""
    is_own = not view.spec.needs_package and view.state not in ("pending", "starting")
    return is_own and not any(rank.step for rank in summary.ranks)


def _told_lines(
    told: Told, summary: JobSummary, program: str, now_s: float, *, with_detail: bool
) -> Iterable[RenderableType]:
    problem = told.problem
    when = when_words(problem)
    if told.hurt == "warned":
        yield problem_text(problem, mark="⚠", style="yellow")
        if when:
            yield Text(f"  {when}", "dim")
        return
    before = f"  {when}; " if when else "  "
    if told.hurt == "stalled":
        yield stall_line(problem, now_s)
        yield Text(f"{before}stacks: {program} stacks {summary.job_id}", "dim")
        return
    yield problem_text(problem)
    if summary.verdict is not None and (reasons := summary.verdict.told_reasons):
        yield Text(f"  {reasons}", "dim")
    if with_detail and problem.detail:
        yield Text("\n".join(problem.detail.splitlines()[-DETAIL_LINES:]), style="dim")
    rank = "" if problem.rank is None else f" --rank {problem.rank}"
    yield Text(f"{before}log: {program} logs {summary.job_id}{rank}", "dim")


def over_line(mark: EventMark) -> Text:
    """Return a warning that is over, and when it was."""
    end_s = mark.end_s or mark.time_s
    times = f"from {formats.clock(mark.time_s)} to {formats.clock(end_s)}"
    lasted = formats.duration(end_s - mark.time_s)
    return Text(f"  over: {shown_line(mark.label)}, {times} ({lasted})", "dim")


def changed_words(event: JobEvent) -> str:
    """Say which settings were changed while the job ran, and by whom."""
    return f"changed after step {count(event.step)}: {shown_line(event.label)}"


def silent_nodes(summary: JobSummary) -> tuple[str, ...]:
    """Return the job's nodes that do not answer."""
    return tuple(dict.fromkeys(one.node for one in summary.ranks if one.state == "unknown"))


def silence_line(node: str, problem: Problem | None) -> Text:
    """Say that a node does not answer, and why and what to do if that is known."""
    if problem is None:
        return Text.assemble(("⚠ ", "yellow"), (f"{node} does not answer", "bold"))
    return problem_text(problem, mark="⚠", style="yellow")


def stall_line(stall: Problem, now_s: float) -> Text:
    """Say why a running job makes no progress, and what to do."""
    since_s = now_s - (stall.time_s or 0.0)
    before = f"stalled for {formats.duration(max(0.0, since_s))}: "
    return problem_text(stall, mark="⚠", style="yellow", before=before)


def restart_line(restart: Restart, now_s: float) -> Text:
    """Say when the next attempt starts, or what it is waiting for."""
    text = Text("⟳ ", style="cyan")
    in_s = restart.at_s - now_s
    when = f"starts in {formats.duration(in_s)}" if in_s > 1 else "is starting"
    what = f"is waiting: {restart.waits_for}" if restart.waits_for is not None else when
    return text.append(f"attempt {restart.number} {what}", style="bold default")


def sample_line(sample: WrittenText) -> Text:
    """Return the model's newest text, cut at the end of the line."""
    return Text.assemble(
        (f"sample at step {count(sample.step)}  ", "dim"),
        (shown_line(sample.prompt, SAMPLE_CHARACTERS), "bold"),
        f" {shown_line(sample.text, SAMPLE_CHARACTERS)}",
        no_wrap=True,
        overflow="ellipsis",
    )


def state_line(summary: JobSummary) -> Text:
    """Return icon, state, name, id and step."""
    text = state_text(summary.state)
    text.append(f"  {summary.name}", style="bold")
    text.append(f"  {summary.job_id}", style="dim")
    if summary.attempt > 1:
        text.append(f"  attempt {summary.attempt} of {summary.attempts}")
    if summary.step:
        text.append(f"  {step_words(summary)}")
    if summary.resumed_step:
        text.append(f"  resumed after step {count(summary.resumed_step)}")
    if summary.run is not None:
        text.append(f" of run {summary.run}")
    if summary.saved_step:
        text.append(f"  saved at {count(summary.saved_step)}")
    return text


def step_words(summary: JobSummary) -> str:
    """Return the last step that every rank has finished, and the total."""
    step, total = summary.step, summary.total_steps
    if step and total and step > total:
        return f"step {count(step)}, more than the {count(total)} that it reported"
    of = f" of {count(total)}" if total else ""
    return f"step {count(step)}{of}"


def times_line(summary: JobSummary, elapsed_s: float, now_s: float) -> Text:
    """Say how long the job has run, and when it is done."""
    word = "ran" if summary.state in TERMINAL else "elapsed"
    facts = [f"{word} {formats.duration(elapsed_s)}"]
    if summary.remaining_s is not None:
        facts.append(formats.finish(now_s, summary))
    elif (why := summary.missing.get("remaining_s")) is not None:
        facts.append(f"time left {formats.ABSENT}: {why}")
    if ahead_s := summary.clock_ahead_s:
        word = "behind" if ahead_s > 0 else "ahead of"
        facts.append(f"this machine's clock is {formats.duration(abs(ahead_s))} {word} the job's")
    return Text(f"  {', '.join(facts)}")


def progress_line(summary: JobSummary, now_s: float) -> str:
    """Return the status in one line, for output that cannot be redrawn."""
    hurts = what_hurts(summary)
    bad = [_told_words(one) for one in hurts if one.hurt != "warned"]
    facts = [f"{formats.clock(now_s)} {', '.join([*bad, summary.state])}"]
    if summary.step:
        facts.append(step_words(summary))
        facts.append(f"{formats.rate(summary.tokens_per_s)}{formats.SPACE}tok/s")
        facts.append(f"MFU {percent(summary.mfu)}")
        facts.append(f"loss {formats.loss(summary.loss)}")
        if summary.evaluation_loss is not None:
            facts.append(f"evaluation {formats.loss(summary.evaluation_loss)}")
    if summary.not_finite:
        facts.append(f"⚠ {formats.not_finite(summary)}")
    if summary.skipped:
        facts.append(f"⚠ {formats.skipped(summary)}")
    if summary.remaining_s is not None:
        facts.append(formats.finish(now_s, summary))
    facts += [f"{node} does not answer" for node in silent_nodes(summary)]
    doing = ranks_progress(summary.ranks)
    if doing is not None:
        facts.append(doing)
    facts += [_told_words(one) for one in hurts if one.hurt == "warned"]
    if summary.restart is not None:
        facts.append(restart_line(summary.restart, now_s + summary.clock_ahead_s).plain)
    return ", ".join(facts)


def _told_words(told: Told) -> str:
    before = {"failed": "✕ ", "stalled": "⚠ stalled: ", "warned": "⚠ "}[told.hurt]
    when = when_words(told.problem)
    return f"{before}{told.problem.headline.rstrip('.')}{f' ({when})' if when else ''}"


def headline(summary: JobSummary) -> Iterable[tuple[str, str, bool]]:
    """Yield label and value of every headline figure, and whether it is NaN or infinite."""
    yield "tok/s", formats.rate(summary.tokens_per_s), False
    yield "job MFU", percent(summary.mfu), False
    yield "step time", formats.seconds(summary.step_s), False
    yield "bubble", percent(summary.bubble), False
    used, rate = summary.busiest_link, summary.busiest_bytes_per_s
    yield "busiest link", formats.bit_rate(rate) if used is None else percent(used), False
    yield "loss", formats.loss(summary.loss), formats.is_bad(summary.loss)
    if summary.evaluation_loss is not None:
        loss = summary.evaluation_loss
        yield "evaluation", formats.loss(loss), formats.is_bad(loss)


def _numbers(summary: JobSummary) -> Table:
    figures = list(headline(summary))
    labels = tuple(label for label, *_ in figures)
    table = plain_table(*labels, right=labels)
    table.add_row(*(Text(value, "bold red" if is_bad else "bold") for _, value, is_bad in figures))
    return table


def _number_notes(summary: JobSummary) -> Iterable[Text]:
    """Yield notes on figures: unknown, not finite, off plan, and where peaks come from."""
    yield from (Text(line, style="dim") for line in window_lines(summary))
    if summary.not_finite:
        yield Text(f"⚠ {formats.not_finite(summary)}", style="bold red")
    if summary.skipped:
        yield Text(f"⚠ {formats.skipped(summary)}", style="yellow")
    if summary.predicted_step_s is not None:
        yield predicted_line(summary.predicted_step_s, summary.off_plan)
    missing = {name: why for name, why in summary.missing.items() if name in MISSING}
    for why in dict.fromkeys(missing.values()):
        names = ", ".join(MISSING[name] for name, one in missing.items() if one == why)
        yield Text(f"{formats.ABSENT}: {names}: {why}", style="dim")
    sources = {rank.peak_source for rank in summary.ranks if rank.peak_source}
    if summary.mfu is not None and sources:
        yield Text(f"MFU of the peak: {'; '.join(sorted(sources))}", style="dim")
    if (line := compared_line(summary)) is not None:
        yield Text(line, style="dim")


def compared_line(summary: JobSummary) -> str | None:
    """Return how much of what is sent in fewer bits arrives, and how long that takes.

    ``signal to noise in fewer bits: activations 42 dB, gradients 15 to 17 dB (least: stage 3 to
    2); encoding takes up to 2 % of a step``
    """
    told = [one for rank in summary.ranks for one in rank.compared_transfers]
    parts = []
    for is_gradient, word in ((False, "activations"), (True, "gradients")):
        some = sorted((one for one in told if one.is_gradient is is_gradient), key=_ratio)
        if some:
            low, high = (f"{one.ratio_db:.0f}" for one in (some[0], some[-1]))
            ends = (some[0].boundary, some[0].boundary + 1)
            sender, receiver = reversed(ends) if is_gradient else ends
            least = f" (least: stage {sender} to {receiver})" if len(some) > 1 else ""
            parts.append(f"{word} {low if low == high else f'{low} to {high}'} dB{least}")
    shares = [rank.coding for rank in summary.ranks if rank.coding is not None]
    if not parts:
        return None
    takes = f"; encoding takes up to {percent(max(shares))} of a step" if shares else ""
    return f"signal to noise in fewer bits: {', '.join(parts)}{takes}"


def _ratio(one: ComparedTransfer) -> float:
    return one.ratio_db


def window_lines(numbers: JobNumbers) -> Iterable[str]:
    """Yield which steps the rates cover, and what the time was spent on."""
    window, whole, spread = numbers.window, numbers.whole, numbers.step_spread
    if spread is not None and spread.high > UNEVEN * spread.low:
        low, high = formats.seconds(spread.low), formats.seconds(spread.high)
        yield f"step time: the median; four of five steps took {low} to {high}"
    if window is not None:
        parts = sorted(window.parts_s.items(), key=lambda one: one[1], reverse=True)
        told = ", ".join(
            f"{percent(one / window.seconds)} {PART_WORDS.get(part, part)}" for part, one in parts
        )
        of = "the whole job," if window == whole else "the last"
        yield f"tok/s and MFU: of {of} {formats.duration(window.seconds)}: {told}"
    if whole is not None and whole != window and whole.tokens_per_s is not None:
        rate = f"{formats.rate(whole.tokens_per_s)}{formats.SPACE}tok/s"
        yield f"whole job so far: {rate} over {formats.duration(whole.seconds)}"
    if numbers.lost_steps:
        yield f"repeated after a restart: {count(numbers.lost_steps)} steps"


def link_table(links: Sequence[LinkSummary], now_s: float) -> Table:
    """Return one row per node and direction.

    Args:
        now_s: Unix time, for the age of a measurement.
    """
    table = plain_table("link", "direction", "rate", "used", "of capacity", right=("rate", "used"))
    for link in links:
        table.add_row(
            f"{link.node} {link.interface}",
            "→ sent" if link.direction == "sent" else "← received",
            formats.bit_rate(link.bytes_per_s),
            percent(link.utilization),
            formats.capacity(link.capacity, now_s=now_s),
        )
    return table


def _links(
    links: Sequence[LinkSummary], now_s: float, most: int | None
) -> Iterable[RenderableType]:
    """Yield the link table; if there are too many links, the fullest and a summary of the rest."""
    if most is None or len(links) <= most:
        yield link_table(links, now_s)
        return
    fullest = sorted(links, key=_fullness, reverse=True)
    fewer = most // 2
    yield link_table(fullest[:fewer], now_s)
    rest = fullest[fewer:]
    unknown = sum(link.utilization is None for link in rest)
    told = [f"at most {percent(rest[0].utilization)} used"] if unknown < len(rest) else []
    told += [f"of {count(unknown)} it is not known"] if unknown else []
    yield Text(f"and {count(len(rest))} more directions: {'; '.join(told)}", "dim")


def _fullness(link: LinkSummary) -> float:
    """Return the sort key of a link's utilization; unknown ones come last."""
    return -1.0 if link.utilization is None else link.utilization


def _link_notes(links: Sequence[LinkSummary], program: str) -> Iterable[Text]:
    if any(link.basis == "ranks" and link.bytes_per_s is not None for link in links):
        yield Text("Loopback is shared: rates are what the ranks exchanged.", style="dim")
    for why in dict.fromkeys(link.missing for link in links if link.missing):
        yield Text(f"{formats.ABSENT}: {why}", style="dim")
    if any(link.bytes_per_s is not None and link.utilization is None for link in links):
        yield Text(f"Measure capacities: {program} measure", style="dim")


def _endings(view: JobView) -> Iterable[Text]:
    reasons = {part.stop_reason for part in view.parts if part.stop_reason}
    if reasons and view.state in ("stopping", "canceled"):
        yield Text(f"  {'; '.join(sorted(reasons))}", style="dim")
    for part in view.parts:
        for left in part.leftovers:
            yield Text.assemble(
                ("⚠ ", "yellow"),
                f"{part.node}: {left} could not be killed: {left.command}",
            )
        if part.awaited:
            yield Text.assemble(("⚠ ", "yellow"), part.awaited)
        if part.state_problem is not None:
            problem = msgspec.structs.replace(part.state_problem, node=part.node)
            yield problem_text(problem, mark="⚠", style="yellow")
