"""Report of the GPU acceptance: a page of text, 80 columns wide, and the same as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu.findings import Finding, Item

COLUMNS = 80
INDENT = " " * 10


def as_data(facts: dict[str, Any], findings: Sequence[Finding], **more: Any) -> dict[str, Any]:
    return more | {"facts": facts, "checks": [one.as_data() for one in findings]}


def page(facts: dict[str, Any], findings: Sequence[Finding], *, title: str) -> str:
    """The report for people; every line of at most 80 columns."""
    lines = [title, "", *_facts(facts), ""]
    for finding in findings:
        lines += finding_lines(finding)
    return "\n".join(lines) + "\n"


def summary(findings: Sequence[Finding]) -> str:
    """How many held, failed and were skipped."""
    states = [one.state for one in findings]
    counts = [f"{states.count(state)} {state}" for state in ("held", "failed", "skipped")]
    return ", ".join(counts)


def write(directory: Path, data: dict[str, Any], text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gpu-check.json").write_text(json.dumps(data, indent=1) + "\n")
    (directory / "gpu-check.txt").write_text(text)


def _facts(facts: dict[str, Any]) -> list[str]:
    rows = [("card", _card(card)) for card in facts["cards"]] or [("card", "none")]
    if pids := facts["others"]:
        rows.append(("in use", f"times are not to be trusted: pids {', '.join(map(str, pids))}"))
    rows += [
        ("driver", facts["driver"] or "none"),
        ("CUDA", facts["cuda"] or "none"),
        ("NCCL", facts["nccl"] or "none"),
        *((name, facts[name]) for name in ("torch", "transformers", "python", "mntrain")),
    ]
    return [line for name, value in rows for line in _wrapped(f"{name:<14}", value, " " * 14)]


def _card(card: dict[str, Any]) -> str:
    gib = card["memory_bytes"] / 2**30
    return f"{card['name']}, {gib:.0f} GiB, compute capability {card['capability']}, {card['uuid']}"


def finding_lines(finding: Finding) -> list[str]:
    """A finding and its items."""
    begins = f"{finding.number} {finding.state:<8}"
    lines = _wrapped(begins, f"{finding.title} ({finding.seconds:.0f} s)", INDENT)
    for item in finding.items:
        lines += _item(item)
    return lines


def _item(item: Item) -> list[str]:
    text = item.name
    if item.reason:
        text += f": {item.reason}"
    if item.figures:
        text += f" [{', '.join(f'{name} {_shown(one)}' for name, one in item.figures.items())}]"
    return _wrapped(f"{INDENT}{item.state:<8}", text, INDENT + " " * 8)


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def _wrapped(first: str, text: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, COLUMNS, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
