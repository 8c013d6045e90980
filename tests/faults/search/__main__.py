"""``python -m tests.faults.search --runs N --first SEED [--stratum S] [--file FILE]``.

Plays the cases of N seeds on a simulated cluster and appends a line for each to a file; seeds that
are in the file already are not played again. Prints a line per case and the share per stratum.

``--doctor`` launches nothing: it plays only the faults that are in place before a launch and can be
known then (``examination.py`` says which cannot, and why), and judges what ``mntrain doctor`` says
of them with the options of the launch.

``--sequences`` draws two or three faults of one job for each seed instead of one;
``sequences.ndjson`` next to this file holds those that were played.

``--stories`` plays those of ``stories.toml`` instead of drawn ones: their numbers are the seeds.

``played.ndjson`` next to this file holds cases of unseen seeds that earlier sittings played,
without their verdicts: give a copy of it as ``--file`` to go on with them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random

from tests.faults.search import results, stories
from tests.faults.search.case import STRATA
from tests.faults.search.examination import examine, is_foreseeable
from tests.faults.search.grammar import draw, draw_sequence
from tests.faults.search.play import Result, play, play_sequence
from tests.faults.search.stage import Stage
from tests.faults.table import write_section
from tests.netlab import missing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument("--stratum", choices=STRATA)
    parser.add_argument("--file", type=Path, default=Path("results.ndjson"))
    parser.add_argument("--patience", type=float, default=1.0, help="for a busy machine")
    parser.add_argument("--list", action="store_true", help="only say what would be played")
    parser.add_argument("--doctor", action="store_true", help="only ask the doctor before a launch")
    parser.add_argument("--sequences", action="store_true", help="drawn faults in sequence")
    parser.add_argument("--stories", action="store_true", help="faults in sequence, from a file")
    parser.add_argument("--again", action="store_true", help="play seeds of the file again")
    parser.add_argument("--page", action="store_true", help="write docs/faults.md, play nothing")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.runs)
    told = dict(enumerate(stories.stories())) if options.stories else {}
    if options.list:
        _list(seeds, options)
        return 0
    if options.page:
        _write_page(options)
        return 0
    if (why_not := missing()) is not None:
        sys.stderr.write(f"no simulated cluster: {why_not}\n")
        return 2
    known = set() if options.again else {one.seed for one in results.read(options.file)}
    left = [seed for seed in seeds if seed not in known]
    if options.stories:
        # However many are played, they are of all sorts.
        left = Random(0).sample(sorted(told), len(told))
        left = [number for number in left if number in seeds and number not in known]
    if options.doctor:
        left = [seed for seed in left if is_foreseeable(draw(seed, options.stratum))]
    if left:
        _play(left, options)
    asked = [one for one in results.read(options.file) if one.seed in seeds]
    table = results.table_of_asks if options.stories or options.sequences else results.table
    shares = table(asked)
    sys.stdout.write(f"\n{shares}\n")
    return 0


def _list(seeds: range, options: argparse.Namespace) -> None:
    told = stories.stories() if options.stories else ()
    for seed in seeds:
        if options.stories:
            title = f"{told[seed].sort}: {told[seed].name}"
        elif options.sequences:
            title = draw_sequence(seed).title
        else:
            case = draw(seed, options.stratum)
            title = f"{case.stratum}: {case.title}"
        sys.stdout.write(f"{seed}  {title}\n")


def _write_page(options: argparse.Namespace) -> None:
    known = results.read(options.file)
    if options.stories:
        write_section("Faults in sequence", stories.section(known))
    elif options.sequences:
        write_section("Faults in sequence, drawn", results.sequences(known))
    else:
        write_section("Faults drawn at random", results.section(known))


def _play(seeds: list[int], options: argparse.Namespace) -> None:
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    how = {"prepare": stories.with_defaults} if options.stories or options.sequences else {}
    stage = Stage(mntrain, options.patience, **how)
    try:
        for seed in seeds:
            if options.stories:
                result = stories.tell(stage, stories.stories()[seed], seed)
            elif options.sequences:
                result = play_sequence(stage, draw_sequence(seed))
            else:
                played = examine if options.doctor else play
                result = played(stage, draw(seed, options.stratum))
            results.append(options.file, result)
            _say(result)
    finally:
        stage.close()


def _say(result: Result) -> None:
    said = "; ".join(f"{one.channel}: {one.kind} {one.node} {one.rank}" for one in result.verdict)
    judged = f"NOT PLAYED ({result.trouble})" if result.trouble else result.score
    sys.stdout.write(
        f"{result.seed:5}  {judged:11} {result.seconds:5.1f} s  {result.stratum}: {result.case}\n"
        f"       true: {result.truth}\n       said: {said or 'nothing'} ({result.state})\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
