"""Acceptance page: a report as self-contained HTML, light or dark as the browser prefers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from jupyter_mntrain.metrics.acceptance.acceptance_report import (
    AcceptanceReport,
    Criterion,
    ScalingPoint,
)
from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.doctor.benchmark import OPERATIONS, BenchReport
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.acceptance.acceptance_table import MARKS, heading, scaling_rows
from jupyter_mntrain.show.tables.benchmark import NAMES
from jupyter_mntrain.show.tables.benchmark import heading as bench_heading

CLASS: Final = "mntrain-acceptance"

_LIGHT: Final = "--good:#1a7f37;--bad:#c62828;--open:#8a5a00;--bar:#2f6fb3;--plan:#9aa7b5"
_DARK: Final = "--good:#5fd17c;--bad:#ff8a80;--open:#f0b95a;--bar:#6fa8e0;--plan:#5c6875"

_STYLE: Final = f"""
.{CLASS} {{ {_LIGHT}; font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; }}
[data-jp-theme-light="false"] .{CLASS} {{ {_DARK}; }}
.{CLASS} h1 {{ font-size: 1.5rem; margin: 0 0 .3rem; }}
.{CLASS} h2 {{ font-size: 1.1rem; margin: 1.8rem 0 .5rem; }}
.{CLASS} table {{ border-collapse: collapse; width: 100%; }}
.{CLASS} th {{ text-align: left; font-weight: 600; opacity: .75; }}
.{CLASS} th, .{CLASS} td {{ padding: .4rem .6rem; vertical-align: top;
  border-bottom: 1px solid rgba(128, 128, 128, .35); overflow-wrap: anywhere; text-align: left; }}
.{CLASS} td.number, .{CLASS} th.number {{ text-align: right; white-space: nowrap; }}
.{CLASS} td.verdict {{ white-space: nowrap; font-weight: 600; }}
.{CLASS} .passed {{ color: var(--good); }}
.{CLASS} .failed {{ color: var(--bad); }}
.{CLASS} .not-judged {{ color: var(--open); }}
.{CLASS} .how {{ opacity: .75; font-size: .87em; }}
.{CLASS} .wide {{ overflow-x: auto; }}
.{CLASS} .bar {{ height: .55rem; margin: .2rem 0; min-width: 2px; border-radius: 2px; }}
"""

_PAGE_STYLE: Final = f"""
:root {{ color-scheme: light dark; }}
body {{ margin: 2rem auto; padding: 0 1rem; max-width: 60rem; background: Canvas;
  color: CanvasText; }}
@media (prefers-color-scheme: dark) {{ .{CLASS} {{ {_DARK}; }} }}
"""


def acceptance_page(report: AcceptanceReport) -> str:
    """Return the whole page."""
    title = escape(f"Acceptance of cluster {shown_name(report.cluster)}")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n</head>\n<body>\n{acceptance_body(report)}\n"
        f"<style>{_PAGE_STYLE}</style>\n</body>\n</html>\n"
    )


def acceptance_body(report: AcceptanceReport) -> str:
    """Return the body of the page alone, for a notebook."""
    return "\n".join(
        (f"<style>{_STYLE}</style>", f'<div class="{CLASS}">', *_parts(report), "</div>")
    )


def _parts(report: AcceptanceReport) -> Iterator[str]:
    seen = report.observed
    yield f"<h1>{escape(heading(report))}</h1>"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.time_s))
    yield f"<p>{_counts(report)}. mntrain {escape(report.version)}, {when}.</p>"
    yield "<h2>Criteria</h2>"
    yield _table(("verdict", "criterion", "figure and reason"), map(_criterion, report.criteria))
    if seen.scaling:
        yield "<h2>Scaling</h2>"
        yield _scaling(seen.scaling)
    if seen.benchmark is not None and seen.benchmark.sizes:
        yield "<h2>Collectives</h2>"
        yield f"<p>{escape(bench_heading(seen.benchmark))}</p>"
        yield _benchmark(seen.benchmark)
    if seen.commands:
        yield "<h2>Documented commands</h2>"
        rows = (
            (f"<code>{escape(one.command)}</code>", str(one.exit_code), formats.seconds(one.took_s))
            for one in seen.commands
        )
        yield _table(("command", "exit code", "took"), map(_row, rows))
    yield "<h2>Nodes</h2>"
    nodes = (
        (escape(shown_name(one.name)), str(one.ranks), escape(shown_line(one.device)))
        for one in seen.nodes
    )
    yield _table(("node", "ranks", "device"), map(_row, nodes))


def _counts(report: AcceptanceReport) -> str:
    said = [
        f'<span class="{judgment.replace(" ", "-")}">{mark} {report.count(judgment)} {judgment}'
        "</span>"
        for judgment, mark in MARKS.items()
    ]
    return ", ".join(said) + ("" if report.is_whole else "; interrupted")


def _criterion(one: Criterion) -> str:
    style = one.judgment.replace(" ", "-")
    said = [escape(shown_line(text)) for text in (one.figure, one.why) if text]
    how = f'<div class="how">{escape(one.how)}</div>' if one.how else ""
    verdict = f'<td class="verdict {style}">{MARKS[one.judgment]} {one.judgment}</td>'
    title = f"<td>{escape(one.title)}{how}</td>"
    return f"<tr>{verdict}{title}<td>{'<br>'.join(said)}</td></tr>"


def _scaling(points: tuple[ScalingPoint, ...]) -> str:
    head = ("nodes", "ranks", "step", "tokens/s", "predicted", "efficiency", "predicted", "")
    known = (rate for one in points for rate in (one.tokens_per_s, one.predicted_tokens_per_s))
    top = max((rate for rate in known if rate), default=1.0)
    rows = []
    for one, cells in zip(points, scaling_rows(points), strict=True):
        bars = _bar(one.tokens_per_s, top, "bar", "measured")
        bars += _bar(one.predicted_tokens_per_s, top, "plan", "predicted")
        cell = f'<td style="width: 35%">{bars}</td>'
        numbers = "".join(f'<td class="number">{escape(text)}</td>' for text in cells)
        rows.append(f"<tr>{numbers}{cell}</tr>")
    legend = '<p class="how">Bars: tokens per second, measured above predicted.</p>'
    return _table(head, rows, numbers=head[:-1]) + legend


def _bar(rate: float | None, top: float, color: str, what: str) -> str:
    if not rate:
        return ""
    label = f"{what}: {formats.rate(rate)} tokens/s"
    style = f"width: {100 * rate / top:.1f}%; background: var(--{color})"
    return f'<div class="bar" style="{style}" title="{label}"></div>'


def _benchmark(report: BenchReport) -> str:
    head = ("operation", "largest", "bus bandwidth", "of line rate")
    rows = []
    for operation in OPERATIONS:
        if sizes := report.of(operation):
            last = sizes[-1]
            rows.append(
                (
                    NAMES[operation],
                    size_text(last.size_bytes),
                    formats.bit_rate(last.bus_bytes_per_s),
                    formats.percent(last.line_share),
                )
            )
    return _table(head, map(_row, rows))


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _table(head: Sequence[str], rows: Iterable[str], *, numbers: Sequence[str] = ()) -> str:
    cells = "".join(
        f'<th class="number">{one}</th>' if one in numbers else f"<th>{one}</th>" for one in head
    )
    body = "\n".join(rows)
    return f'<div class="wide"><table>\n<tr>{cells}</tr>\n{body}\n</table></div>'
