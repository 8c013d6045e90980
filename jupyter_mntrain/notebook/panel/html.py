"""Panel HTML: escapes all text from nodes."""

from __future__ import annotations

from html import escape

from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import LIVENESS_ICONS
from jupyter_mntrain.verbs.panel.node_row import FormRow, RowCheck
from jupyter_mntrain.verbs.panel.prediction import LinkLoad, Prediction
from jupyter_mntrain.verbs.panel.text import memory_words, pace, plan_notes, unknown_step
from jupyter_mntrain.workload.memory_fit import RankMemory

CHECK_ICONS = {
    "passed": ("✓", "ok"),
    "unknown": ("?", "warn"),
    "slows": ("△", "warn"),
    "stops": ("✕", "bad"),
}
LIVENESS_COLORS = {"up": "ok", "suspect": "warn", "lost": "bad"}
MOST_SLOTS, MOST_RANKS = 48, 8
"""Largest schedule that is drawn slot by slot."""

AT_PEAK = "At the peak of each GPU; real steps take longer."
NO_MEMORY = "The model is not on this machine, or cannot run on these ranks."
OF_CUDA = "Includes what CUDA, NCCL and torch's allocator reserve."
UNENCRYPTED = "Training traffic is not encrypted."


def icon(symbol: str, color: str) -> str:
    return f'<span class="mnt-{color}" aria-hidden="true">{symbol}</span> '


def second(words: str) -> str:
    """Return secondary text: smaller, in gray."""
    return f'<span class="mnt-second">{escape(words)}</span>' if words else ""


def state(row: FormRow) -> str:
    symbol = icon(LIVENESS_ICONS.get(row.liveness, "?"), LIVENESS_COLORS.get(row.liveness, "off"))
    return f"{symbol}{escape(row.state or 'up')} {second(row.hardware)}".rstrip()


def check(one: RowCheck) -> str:
    symbol, color = CHECK_ICONS[one.level]
    text = escape(one.text)
    return icon(symbol, color) + (
        f'<span class="mnt-off">{text}</span>' if one.level == "passed" else text
    )


def predicted(prediction: Prediction | None, *, now_s: float) -> str:
    """Return step time, bubble, link load and memory; empty for a script.

    Args:
        now_s: Unix time, for the age of measurements.
    """
    if prediction is None:
        return ""
    parts = [_step(prediction)]
    if prediction.ranks > 1:
        bubble = formats.percent(prediction.bubble)
        parts.append(f"Schedule's own bubble<br><b>{bubble}</b>{_schedule(prediction)}")
    if prediction.ranks > 1 or prediction.links:
        parts.append(f"Links, per step and direction{_links(prediction.links, now_s)}")
    parts.append(_memory(prediction.memory))
    cells = "".join(f"<div>{part}</div>" for part in parts)
    return f'<div class="mnt-predicted">{cells}</div>'


def _step(prediction: Prediction) -> str:
    step = prediction.step
    if prediction.plan is not None:
        plan = prediction.plan.plan
        return (
            f"Predicted step<br><b>{formats.seconds(plan.step_s)}</b>"
            f"<div>{formats.rate(plan.tokens_per_s)} tok/s</div>"
            f"{''.join(map(_note, plan_notes(plan)))}"
        )
    if step is None:
        return f"Step time<br><b>{formats.ABSENT}</b>{_note(unknown_step(prediction))}"
    return (
        f"Step time, at least<br><b>{formats.seconds(step.seconds)}</b>"
        f"<div>at most {formats.rate(step.tokens_per_s)} tok/s</div>"
        f"{_note(pace(prediction))}{_note(AT_PEAK)}"
    )


def _memory(memory: tuple[RankMemory, ...] | None) -> str:
    """Return what each rank needs as a share of its GPU's memory."""
    if memory is None:
        return f"Memory<br><b>{formats.ABSENT}</b>{_note(NO_MEMORY)}"
    lines = [
        f"<span>rank {one.rank} {escape(one.node)}</span>{_meter(one)}"
        f'<span class="mnt-figure">{memory_words(one)}</span>'
        for one in memory[:MOST_RANKS]
    ]
    rest = memory[MOST_RANKS:]
    more = ""
    if rest:
        most = max(rest, key=lambda one: one.total)
        more = _note(f"and {len(rest)} more, at most {memory_words(most)}")
    of_cuda = _note(OF_CUDA) if any(one.gpu_bytes for one in memory) else ""
    return f'Memory, estimated<div class="mnt-bars">{"".join(lines)}</div>{more}{of_cuda}'


def _meter(one: RankMemory) -> str:
    if one.gpu_bytes is None:
        return "<span></span>"
    share = min(1.0, one.total / one.gpu_bytes) if one.gpu_bytes else 1.0
    color = "" if one.fits else " mnt-over"
    return f'<i class="mnt-meter{color}"><i style="width:{100 * share:.1f}%"></i></i>'


def _note(words: str) -> str:
    return f'<div class="mnt-second">{escape(words)}</div>'


def _schedule(prediction: Prediction) -> str:
    """Return the number of empty slots per stage, and a drawing of them if there are few."""
    ranks, slots, empty = prediction.ranks, prediction.slots, prediction.empty
    if empty is None:
        return '<div class="mnt-second">weight gradients fill empty slots</div>'
    said = f'<div class="mnt-second">{empty} of {slots} slots are empty in each stage</div>'
    if slots > MOST_SLOTS or ranks > MOST_RANKS:
        return said
    busy = slots - empty
    cells = "".join(
        "<i></i>" if rank <= slot < rank + busy else '<i class="o"></i>'
        for rank in range(ranks)
        for slot in range(slots)
    )
    label = f"{ranks} stages, {slots} slots, {empty} of them empty"
    style = f"grid-template-columns:repeat({slots},minmax(2px,8px))"
    strip = f'<div class="mnt-slots" role="img" aria-label="{label}" style="{style}">{cells}</div>'
    return strip + said


def _links(links: tuple[LinkLoad, ...] | None, now_s: float) -> str:
    if links is None:
        return '<div class="mnt-second">unknown until the model is loaded</div>'
    if not links:
        return '<div class="mnt-second">none: all ranks are on one node</div>'
    lines = [_link(link, now_s) for link in links[:8]]
    if len(links) > len(lines):
        lines.append(f"and {len(links) - len(lines)} more")
    return "".join(f"<div>{line}</div>" for line in lines) + (
        f'<div class="mnt-second">{UNENCRYPTED}</div>'
    )


def _link(link: LinkLoad, now_s: float) -> str:
    where = f"{escape(link.sender)} → {escape(link.receiver)}"
    size = f"<b>{link.bytes_per_step / 1e6:,.1f}{formats.SPACE}MB</b>"
    if link.seconds is None:
        return f"{where} {size}, link not measured"
    return (
        f"{where} {size}, {formats.seconds(link.seconds)} of each step at "
        f"{formats.capacity(link.capacity, now_s=now_s)}"
    )
