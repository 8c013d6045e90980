"""Data stage: text to cached tokens, next to the tokenizer library's own processes.

    python -m benchmarks.data_stage [--mb 1000] [--repeats 3] [--directory DIR] [--json FILE]

Writes a .jsonl file of paragraphs of the Python library drawn by seed, and one of a quarter of its
size. In turn, the trainer reads, hashes and tokenizes it into an empty cache, and one process per
core parses and encodes its share of the same lines with `encode_batch` and throws the ids away.
Neither's start counts. The trainer's own memory (RssAnon) is sampled; above what it has before it
begins, that may not grow with the file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.loading import Peaks, memory

REQUIRED_RATIO = 0.8
MOST_OWN_BYTES = 400e6
"""Of a rank while it tokenizes, besides the interpreter: four batches and their encodings."""
VOCABULARY = 8192
LINES_AT_ONCE = 1000


def main() -> int:
    arguments = _arguments()
    free = shutil.disk_usage(arguments.directory or tempfile.gettempdir()).free
    if free < 4e6 * arguments.mb:
        print(f"data_stage: {arguments.mb} MB and their tokens do not fit", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        model = _in_process(write_tokenizer, directory)
        files = [directory / "quarter.jsonl", directory / "whole.jsonl"]
        for file, size in zip(files, (arguments.mb / 4, arguments.mb), strict=True):
            _in_process(write_text, file, int(size * 1e6))
        quarter = _in_process(staged, files[0], model, directory / "cache")
        pairs = []
        for number in range(arguments.repeats):
            parts = {
                "stage": lambda: _in_process(staged, files[1], model, directory / "cache"),
                "library": lambda: {"seconds": library_seconds(files[1], model)},
            }
            order = list(parts) if number % 2 else list(reversed(parts))
            pairs.append({part: parts[part]() for part in order})
    return _report(quarter, pairs, arguments)


def write_tokenizer(directory: Path) -> Path:
    """Train a tokenizer on the Python library; the folder with its tokenizer.json."""
    from jupyter_mntrain.recipe.sections import DataSection
    from jupyter_mntrain.train.data.corpus import read_corpus
    from jupyter_mntrain.train.data.tokens import trained_tokens

    section = DataSection(vocabulary_size=VOCABULARY)
    tokens = trained_tokens(read_corpus(section), section, cache=directory / "trained")
    tokens.tokenizer.save_pretrained(directory / "model")
    return directory / "model"


def write_text(file: Path, size: int) -> None:
    """Write documents of 2 to 12 paragraphs each, until they have so many bytes."""
    from jupyter_mntrain.recipe.sections import DataSection
    from jupyter_mntrain.train.data.corpus import read_corpus

    texts = (str(one.document) for one in read_corpus(DataSection()).documents())
    paragraphs = [one for text in texts for one in text.split("\n\n") if len(one) > 40]
    drawn = random.Random(0)
    with file.open("w", encoding="utf-8") as out:
        while size > 0:
            text = "\n\n".join(drawn.choices(paragraphs, k=drawn.randint(2, 12)))
            size -= out.write(json.dumps({"text": text}) + "\n")


def staged(file: Path, model: Path, cache: Path) -> dict[str, float]:
    """Read, hash and tokenize as a rank does; seconds, tokens and own memory in bytes."""
    from jupyter_mntrain.recipe.sections import DataSection
    from jupyter_mntrain.train.data.corpus import read_corpus
    from jupyter_mntrain.train.data.tokens import model_tokens

    shutil.rmtree(cache, ignore_errors=True)
    section = DataSection(source=str(file))
    before, peaks, begun = memory()["RssAnon"], Peaks(), time.perf_counter()
    tokens = model_tokens(read_corpus(section), section, model, 0, cache=cache)
    seconds = time.perf_counter() - begun
    own = peaks.end()["RssAnon"] - before
    return {"seconds": seconds, "tokens": len(tokens.ids), "own_bytes": own}


def library_seconds(file: Path, model: Path) -> float:
    """Of one process per core, each of which encodes its share, once all are ready."""
    count = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(count + 1)
    processes = [
        context.Process(target=_encode_share, args=(file, model, number, count, ready))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    ready.wait()
    begun = time.perf_counter()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("data_stage: a process of the tokenizer failed")
    return time.perf_counter() - begun


def _encode_share(file: Path, model: Path, number: int, count: int, ready: Any) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    ready.wait()
    for lines in _share(file, number, count):
        texts = [json.loads(line)["text"] for line in lines]
        tokenizer.encode_batch(texts, add_special_tokens=False)


def _share(file: Path, number: int, count: int) -> Iterator[list[bytes]]:
    """The lines that begin in one of ``count`` equal parts of a file, some at once."""
    size = file.stat().st_size
    begin, end = size * number // count, size * (number + 1) // count
    with file.open("rb") as lines:
        lines.seek(max(0, begin - 1))
        if begin:
            lines.readline()
        found: list[bytes] = []
        while lines.tell() < end and (line := lines.readline()):
            found.append(line)
            if len(found) == LINES_AT_ONCE:
                yield found
                found = []
        yield found


def _in_process(function: Any, *arguments: Any) -> Any:
    """Call in a fresh process, so that none begins with what another has left in memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _report(
    quarter: dict[str, float], pairs: list[dict[str, dict[str, float]]], arguments: Any
) -> int:
    ratios = []
    for pair in pairs:
        stage, library = pair["stage"], pair["library"]["seconds"]
        ratios.append(library / stage["seconds"])
        print(
            f"{arguments.mb:g} MB: stage {stage['seconds']:.1f} s, library {library:.1f} s, "
            f"{ratios[-1]:.2f} x; {stage['tokens']:,.0f} tokens; "
            f"own memory +{stage['own_bytes'] / 1e6:.0f} MB"
        )
    ratio, own = statistics.median(ratios), max(pair["stage"]["own_bytes"] for pair in pairs)
    print(f"{arguments.mb / 4:g} MB: own memory +{quarter['own_bytes'] / 1e6:.0f} MB")
    is_met = ratio >= REQUIRED_RATIO and own <= MOST_OWN_BYTES
    limits = f"required {REQUIRED_RATIO} x and {MOST_OWN_BYTES / 1e6:.0f} MB"
    print(
        f"median {ratio:.2f} x, own memory +{own / 1e6:.0f} MB, {limits}: "
        f"{'met' if is_met else 'NOT met'}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"quarter": quarter, "pairs": pairs}))
    return int(not is_met)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=float, default=1000.0, help="size of the file")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs")
    parser.add_argument("--directory", type=Path, help="for the temporary files")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
