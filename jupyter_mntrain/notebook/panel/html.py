"""Panel HTML: escapes all text from nodes."""

from __future__ import annotations

from html import escape

from jupyter_mntrain.show import formats
from jupyter_mntrain.show.formats import LIVENESS_ICONS
from jupyter_mntrain.verbs.panel.checks.check import Check
from jupyter_mntrain.verbs.panel.node_row import FormRow
from jupyter_mntrain.verbs.panel.prediction import LinkLoad, Prediction

CHECK_ICONS = {"passed": ("✓", "ok"), "warning": ("△", "warn"), "error": ("✕", "bad")}
LIVENESS_COLORS = {"up": "ok", "suspect": "warn", "lost": "bad"}
MOST_SLOTS, MOST_RANKS = 48, 8
"""Largest schedule that is drawn slot by slot."""

UNENCRYPTED = "Training traffic is not encrypted."


def icon(symbol: str, color: str) -> str:
    return f'<span class="mnt-{color}" aria-hidden="true">{symbol}</span> '


def second(words: str) -> str:
    """Secondary text: smaller, in gray."""
    return f'<span class="mnt-second">{escape(words)}</span>' if words else ""


def state(row: FormRow) -> str:
    symbol = icon(LIVENESS_ICONS.get(row.liveness, "?"), LIVENESS_COLORS.get(row.liveness, "off"))
    return f"{symbol}{escape(row.state or 'up')} {second(row.hardware)}".rstrip()


def check(one: Check) -> str:
    symbol, color = CHECK_ICONS[one.level]
    text = escape(one.text)
    return icon(symbol, color) + (
        f'<span class="mnt-off">{text}</span>' if one.level == "passed" else text
    )


def predicted(prediction: Prediction | None, *, now_s: float) -> str:
    """Bubble and link load; empty without a pipeline.

    Args:
        now_s: Unix time, for the age of measurements.
    """
    if prediction is None or prediction.ranks < 2:
        return ""
    links = _links(prediction.links, now_s)
    return (
        f'<div class="mnt-predicted"><div>Schedule\'s own bubble<br>'
        f"<b>{formats.percent(prediction.bubble)}</b>{_schedule(prediction)}</div>"
        f"<div>Links, per step and direction{links}</div></div>"
    )


def _schedule(prediction: Prediction) -> str:
    """The slots of each rank, where none is filled; drawn if there are few."""
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
