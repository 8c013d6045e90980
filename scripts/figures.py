"""Write what figures are, from jupyter_mntrain/metrics/figures.toml, where people read it.

That is the rows of docs/glossary.md, the page's tooltips, and the table of docs/figures.md; the two
schemas of JSON are described here when they are made. With --check: fail if one is outdated.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_mntrain.metrics.definitions import Definition, definitions

ROOT = Path(__file__).resolve().parents[1]
RECORDS = (
    "ComparedTransfer", "JobNumbers", "JobStatus", "JobSummary", "LinkSummary", "ListedJob",
    "RankSummary", "RankedJob", "Window",
)  # fmt: skip
"""Whose fields are figures, by the names that those have in JSON."""

BEGIN, END = "<!-- scripts/figures.py -->\n", "<!-- end -->\n"


def describe(components: Mapping[str, dict[str, Any]]) -> None:
    """Say what the figures of these JSON schemas are.

    Args:
        components: by the names of their records; those of others stay as they are.
    """
    meanings = {field: one for one in definitions().values() for field in one.fields}
    for record in components.keys() & set(RECORDS):
        for name, field in components[record]["properties"].items():
            if name in meanings:
                one = meanings[name]
                field["description"] = f"{one.meaning}. Unit: {one.unit}; over: {one.over}"


def glossary(text: str) -> str:
    """A row of each figure in place; new ones at the end of the table of numbers."""
    before, head, numbers = text.partition("## Numbers\n")
    for word, one in definitions().items():
        row = f"| {word} | {one.meaning} |\n"
        found = re.search(rf"^\| {re.escape(word)} \| .*\n", numbers, re.MULTILINE)
        begin, end = found.span() if found else (len(numbers), len(numbers))
        numbers = numbers[:begin] + row + numbers[end:]
    return before + head + numbers


def tooltips(text: str) -> str:
    """Those of figures that the page has a tooltip of."""
    for word, one in definitions().items():
        told = re.sub(r"[`*]", "", one.meaning).replace("'", "\u2019")
        name = re.escape(word.replace("'", "\u2019"))
        pattern = rf"^    (?:{name}|'{name}'): trans\.__\(\s*'([^']*)'"
        if found := re.search(pattern, text, re.MULTILINE):
            text = text[: found.start(1)] + told + text[found.end(1) :]
    return text


def table(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    lines = ["| figure | in JSON | unit | over | clock |", "| --- " * 5 + "|"]
    lines += [_row(word, one) for word, one in definitions().items()]
    return before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + rest.partition(END)[2]


def _row(word: str, one: Definition) -> str:
    fields = ", ".join(f"`{field}`" for field in one.fields)
    return f"| {word} | {fields} | {one.unit} | {one.over} | {one.clock} |"


PLACES = {
    "docs/glossary.md": glossary,
    "labextension/src/terms.tsx": tooltips,
    "docs/figures.md": table,
}


def main() -> int:
    outdated = []
    for name, made in PLACES.items():
        before = (ROOT / name).read_text(encoding="utf-8")
        after = made(before)
        if after != before:
            outdated.append(name)
            if "--check" not in sys.argv:
                (ROOT / name).write_text(after, encoding="utf-8")
    if "--check" not in sys.argv:
        return 0
    for name in outdated:
        print(f"{name} is outdated. Fix: scripts/types", file=sys.stderr)
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
