"""``python -m tests.rulers [--write] [PLAY…]``: plays jobs whose truth is known, and prints every
figure, its truth and its error; ends with 1 where one is above its limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rulers.plays import PLAYS
from tests.rulers.table import measure, summarized, wrong

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/figures.md"
BEGIN = "<!-- python -m tests.rulers --write -->\n"


def main(names: list[str]) -> int:
    writes = "--write" in names
    names = [one for one in names if one != "--write"]
    plays = [play for play in PLAYS if not names or play.name in names]
    rows = list(measure(plays))
    table = summarized(rows)
    print(table)
    if writes:
        before = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[0]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table}\n", encoding="utf-8")
    bad = wrong(rows)
    print(f"\n{len(rows):,} figures of {len(plays)} plays; {len(bad):,} above their limit")
    for row in bad:
        print(row, row.error)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
