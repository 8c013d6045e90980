"""``python -m tests.rulers [PLAY…]``: plays jobs whose truth is known, and prints every figure, its
truth and its error; ends with 1 where one is above its limit.
"""

from __future__ import annotations

import sys

from tests.rulers.plays import PLAYS
from tests.rulers.table import measure, summarized, wrong


def main(names: list[str]) -> int:
    plays = [play for play in PLAYS if not names or play.name in names]
    rows = list(measure(plays))
    print(summarized(rows))
    bad = wrong(rows)
    print(f"\n{len(rows):,} figures of {len(plays)} plays; {len(bad):,} above their limit")
    for row in bad:
        print(row, row.error)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
