"""Real chat templates × tokenizers × masks on 1, 2 and 3 ranks, against transformers alone.

    python -m tests.train.combinations [--only TEMPLATE] [--every N] [--tokens]

Each line is one combination: a model directory and a file of data, from which ``reference.py``
makes sequences, masks and three steps without the trainer, and the trainer as its recipe says. A
line is equal if token ids and what is learned of them are the same, and the three losses differ by
at most 1e-6 on every number of ranks. Ends with 1 if anything differs, and names the first token
that does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.train.combinations.cases import COMBINATIONS, Combination
from tests.train.combinations.compared import LIMIT, Compared, compare
from tests.train.combinations.trained import MOST_RANKS, quiet, readings, trainings

WIDTH = 8


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    wanted = [one for one in COMBINATIONS if not arguments.only or one.template in arguments.only]
    wanted = wanted[:: arguments.every]
    quiet()
    begun = time.monotonic()
    counts = "".join(f"{ranks:{WIDTH}}" for ranks in range(1, MOST_RANKS + 1))
    losses = "" if arguments.tokens else f"  loss{counts} ranks"
    print(f"{'combination':50} sequences learned{losses}", flush=True)
    equal = 0
    with tempfile.TemporaryDirectory() as name:
        tell = readings if arguments.tokens else trainings
        for number, (one, told) in enumerate(tell(wanted, Path(name)), start=1):
            compared = compare(one, Path(name), told)
            equal += not compared.differences
            print(f"{number:3} {_shown(one, compared)}", flush=True)
    took = time.monotonic() - begun
    print(f"{took:.0f} s: {equal} of {len(wanted)} equal", flush=True)
    return int(equal != len(wanted))


def _shown(one: Combination, compared: Compared) -> str:
    errors = "".join(
        f"{error:{WIDTH}.0e}" if error <= LIMIT else f"{error:{WIDTH - 1}.0e}!"
        for error in compared.loss_errors
    )
    loss = f" {compared.loss:5.2f}" if errors else ""
    line = f"{one.name:46} {compared.sequences:9} {compared.learned:7.0%}{loss}{errors}"
    return "\n      ".join([line, *compared.differences])


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({one.template for one in COMBINATIONS})
    parser.add_argument("--only", action="append", choices=names, help="a template; repeatable")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="every N-th alone")
    parser.add_argument("--tokens", action="store_true", help="compare no losses: seconds")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
