"""Plan tables: what a plan predicts for each rank, alternatives, and what would help."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.model.records.plan import Improvement, OtherPlan, Plan, PlannedRank
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import folding, plain_table

MOST_RANKS: Final = 16
MOST_GUESSES: Final = 6
MOST_COUNTS: Final = 8
SURE: Final = 1.1
"""A gain is shown with its range if that is wider than this."""

_BITS: Final[Mapping[str, str]] = {
    "int8": "8 bits",
    "int8-int4": "8 bits, and 4 for gradients,",
    "int4": "4 bits",
}
"""What is said of ways to send in fewer bits; of others, their names."""

EQUAL_SPLIT: Final = "equal split"
FSDP: Final = "FSDP"
WORTH_SAYING: Final = 1.25
"""Times as fast from which FSDP is called better: it took up to 1.12 times as long as predicted, in
four runs on CPUs."""


def plan_view(
    plan: Plan,
    title: str,
    step: RenderableType | None = None,
    *,
    program: str,
    ranks: Sequence[int] = (),
    width: int = 1,
) -> RenderableType:
    """Return everything about a plan.

    Args:
        title: what is planned.
        step: a picture of its step in characters.
        program: ``mntrain`` or ``%mntrain``, for hints.
        ranks: of the first pipeline; by default, all of one.
        width: number of pipelines.
    """
    parts: list[RenderableType] = [folding([Text(shown_line(title), "bold")]), Text()]
    parts += [_headline(plan), Text(), folding(_sentences(plan)), Text()]
    parts += [_rank_table(plan, ranks or range(len(plan.ranks)), width)]
    if step is not None:
        parts += [Text(), step]
    if plan.others:
        parts += [Text(), _other_table(plan)]
    if plan.improvements:
        parts += [Text(), _improvement_table(plan)]
    if plan.guesses:
        parts += [Text(), folding(_guess_lines(plan.guesses, program))]
    return Group(*parts)


def plan_line(plan: Plan, schedule: str) -> Text:
    """Return a plan in one line."""
    words = f"{foreseen(plan)}: {formats.seconds(plan.step_s)} per step, {schedule}"
    if compressed := compressed_words(plan):
        words += f"; {compressed}"
    words += f"; bottleneck: {shown_line(plan.bottleneck)}"
    if plan.guesses:
        words += "; some speeds are not measured"
    if why := uncompressed_words(plan):
        words += f". {why}"
    return Text(words, "dim")


def compressed_words(plan: Plan) -> str:
    """Say what is compressed; empty if nothing is.

    Like ``8 bits between wopr and muthur: 1.8 × as fast``.
    """
    pairs: dict[str, list[str]] = {}
    for one in plan.compressed:
        pairs.setdefault(one.sent_as, []).append(" and ".join(map(shown_name, one.nodes)))
    words = "; ".join(
        f"{_BITS.get(transfer, shown_line(transfer))} between {', '.join(nodes)}"
        for transfer, nodes in pairs.items()
    )
    if words and plan.compressed_gain is not None:
        words += f": {formats.fixed(plan.compressed_gain, 1)}{formats.SPACE}× as fast"
    return words


def uncompressed_words(plan: Plan) -> str:
    """Say why nothing may be compressed; empty if it may be."""
    return f"Nothing is compressed: {shown_line(plan.uncompressed)}" if plan.uncompressed else ""


def foreseen(plan: Plan) -> str:
    """Say whether a plan's step time is predicted or guessed; a guess may be 10 times off."""
    return "guessed" if plan.guesses else "predicted"


def against_equal_split(plan: Plan) -> float | None:
    """Return the speedup over the equal split; ``None`` if that is not known."""
    equal = next((one.step_s for one in plan.others if one.name == EQUAL_SPLIT), None)
    return None if equal is None or plan.step_s <= 0 else equal / plan.step_s


def _headline(plan: Plan) -> RenderableType:
    idle = [rank.bubble for rank in plan.ranks]
    busiest = max((link.busy for link in plan.links), default=None)
    gain = against_equal_split(plan)
    figures = {
        f"{foreseen(plan)} step": formats.seconds(plan.step_s),
        "tok/s": formats.rate(plan.tokens_per_s),
        "not computing": formats.percent(sum(idle) / len(idle)) if idle else formats.ABSENT,
        "busiest link": "none" if busiest is None else formats.percent(busiest),
        "against equal split": formats.ABSENT if gain is None else times(gain),
    }
    table = plain_table(*figures)
    table.add_row(*(Text(value, "bold") for value in figures.values()))
    return table


def _sentences(plan: Plan) -> Iterator[Text]:
    yield Text.assemble(("Bottleneck: ", "bold"), shown_line(plan.bottleneck))
    if plan.chosen:
        yield Text.assemble(("Chosen: ", "bold"), chosen_words(plan.chosen))
    if compressed := compressed_words(plan):
        yield Text.assemble(("Compressed: ", "bold"), compressed)
    if why := uncompressed_words(plan):
        yield Text(why, "yellow")
    for other in plan.others:
        if other.name == FSDP and other.step_s and plan.step_s > WORTH_SAYING * other.step_s:
            gain = f"{FSDP}, predicted {times(plan.step_s / other.step_s)} as fast: "
            yield Text.assemble(("Better: ", "bold"), gain, chosen_words(other.chosen))


def chosen_words(chosen: Mapping[str, str]) -> str:
    """Describe chosen settings: ``eager-1f1b, 8 microbatches, split 9 / 7, no recomputation``."""
    return shown_line(", ".join(_words(name, value) for name, value in chosen.items()))


def _words(name: str, value: str) -> str:
    match name:
        case "data_parallel.replicas" | "data_parallel.shards":
            return f"{value} {name.rpartition('.')[2]}"
        case "pipeline.schedule":
            return value
        case "pipeline.microbatches":
            return "1 microbatch" if value == "1" else f"{value} microbatches"
        case "pipeline.split":
            return f"split {_counts(value)}"
        case "pipeline.in_flight":
            return f"in flight {_counts(value)}"
        case "pipeline.deferred":
            return f"deferred {_counts(value)}"
        case "pipeline.transfer":
            return f"transfer {_each(value)}"
        case "memory.checkpointing":
            return f"{'no' if value == 'none' else value} recomputation"
        case _:
            return f"{name} {value}"


def _counts(value: str) -> str:
    """Format a list of numbers: 9 / 7; of many, the least and the most."""
    counts = json.loads(value)
    if not isinstance(counts, list) or len(counts) <= MOST_COUNTS:
        return " / ".join(map(str, counts)) if isinstance(counts, list) else str(counts)
    return f"{min(counts)} to {max(counts)}"


def _each(value: str) -> str:
    """Format a name, or a list of them: int8 / none; of many, which there are."""
    if not value.startswith("["):
        return value
    names = list(map(str, json.loads(value)))
    return " / ".join(names if len(names) <= MOST_COUNTS else sorted({*names}))


def _rank_table(plan: Plan, ranks: Sequence[int], width: int) -> RenderableType:
    coding = ["coding"] if any(rank.coding_s for rank in plan.ranks) else []
    right = ("layers", "computing", *coding)
    table = plain_table("rank", "device", "layers", "computing", *coding, "memory", right=right)
    for number, rank in zip(ranks, plan.ranks[:MOST_RANKS], strict=False):
        taken = [rank.computing_s, *([rank.coding_s] if coding else [])]
        table.add_row(
            str(number),
            Text(shown_line(f"{rank.node} {rank.device}")),
            " + ".join(map(str, rank.layers)),
            *(formats.percent(one / plan.step_s if plan.step_s > 0 else 0.0) for one in taken),
            _memory(rank),
        )
    notes = []
    if (more := len(plan.ranks) - MOST_RANKS) > 0:
        notes.append(Text(f"… and {more} more ranks", "dim"))
    if width > 1:
        notes.append(Text(f"the first of {width} pipelines; the others are alike", "dim"))
    return Group(table, *notes)


def _memory(rank: PlannedRank) -> Text:
    needed, limit = rank.memory_bytes, rank.memory_limit_bytes
    if limit is None:
        return Text(formats.memory(needed))
    style = "bold red" if needed > limit else ""
    return Text(f"{formats.memory(needed)} of {formats.memory(limit)}", style)


def _other_table(plan: Plan) -> RenderableType:
    right = ("step", "speed")
    table = plain_table("compared with", "step", "speed", "most memory", right=right)
    most = max((rank.memory_bytes for rank in plan.ranks), default=0.0)
    own = formats.seconds(plan.step_s)
    table.add_row(Text("this plan", "bold"), Text(own, "bold"), "", formats.memory(most))
    for other in plan.others:
        table.add_row(_name(plan, other), *_figures(plan, other))
    return table


def _name(plan: Plan, other: OtherPlan) -> Text:
    """Return an alternative's name, with the settings that differ, or why it cannot run."""
    text = Text(shown_line(other.name))
    differing = {
        name: value for name, value in other.chosen.items() if plan.chosen.get(name) != value
    }
    if differing:
        text.append(f": {chosen_words(differing)}", "dim")
    if other.note:
        text.append(f"; {shown_line(other.note)}", "dim")
    if other.obstacle:
        text.append(f": {shown_line(other.obstacle)}", "red")
    return text


def _figures(plan: Plan, other: OtherPlan) -> tuple[str, str, str]:
    memory = formats.memory(max(other.memory_bytes)) if other.memory_bytes else ""
    if other.step_s is None:
        return "–", "", memory
    return formats.seconds(other.step_s), times(plan.step_s / other.step_s), memory


def _improvement_table(plan: Plan) -> RenderableType:
    table = plain_table("what would help most", "gain", right=("gain",))
    for one in plan.improvements:
        table.add_row(Text(shown_line(one.what)), _gain(one))
    return table


def _gain(one: Improvement) -> Text:
    """Return a gain, with its range if speeds were guessed."""
    text = Text(times(one.gain))
    if one.low is not None and one.high is not None and one.high > SURE * one.low:
        low, high = (formats.fixed(gain, 1) for gain in (one.low, one.high))
        text.append(f" guessed: {low} to {high}", "yellow")
    return text


def _guess_lines(guesses: Sequence[str], program: str) -> Iterator[Text]:
    yield Text.assemble(("Guessed, not measured", "yellow"), f" ({program} measure does):")
    for guess in guesses[:MOST_GUESSES]:
        yield Text(f"- {shown_line(guess)}", "dim")
    if (more := len(guesses) - MOST_GUESSES) > 0:
        yield Text(f"- and {more} more", "dim")


def times(factor: float) -> str:
    return f"{formats.fixed(factor, 2)}{formats.SPACE}×"
