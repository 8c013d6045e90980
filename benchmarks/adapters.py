"""LoRA adapters against full finetuning, on the tutorial's task and a base that has learned.

    python -m benchmarks.adapters [--rank 16] [--steps 120] [--cache FOLDER] [--json FILE]

The task is the conversations that notebooks/finetune.ipynb writes. The base is trained here, on
the manual of Python and on sentences and turns of the task's words in random order; it is kept in a
cache. Then all methods train on the same conversations in the same order for as many tokens, each
at several learning rates: all weights, LoRA, and LoRA with embedding and output projection trained
whole next to it, as usual where a base has hardly said the words of a task. The last one is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from pydoc_data import topics

import msgspec
import platformdirs

from jupyter_mntrain.model.records.metrics import RankEvaluation

LIMIT = 1.05
"""Loss of adapters over that of full finetuning, at most."""
NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "finetune.ipynb"
TASK, TEXT = "samantha.jsonl", "text.jsonl"
WHOLE = "LoRA, ends whole"
"""Embedding and head are trained alongside the adapters."""
RATES = {"full": (1e-3, 2e-3, 5e-3), "LoRA": (2e-3, 5e-3), WHOLE: (1e-3, 2e-3, 5e-3)}
"""That each method tries: adapters usually take several times the rate of all weights."""
TURNS = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>"
BASE = """
[model]
preset = "llama-8m"
layers = 4
[data]
source = "text.jsonl"
sequence_length = 128
vocabulary_size = 1024
[optimizer]
learning_rate = 2e-3
[train]
steps = 250
batch_size = 16
device = "cpu"
[evaluation]
interval_steps = 50
[checkpoint]
interval_steps = 0
at_end = false
[output]
directory = "base"
"""
FINETUNE = """
[model]
path = {base}
[data]
source = "samantha.jsonl"
format = "chat"
packing = "best-fit"
answers_only = true
sequence_length = 128
[adapters]
rank = {rank}
train_whole = {whole}
[optimizer]
learning_rate = {rate}
[train]
steps = {steps}
batch_size = 8
device = "cpu"
[evaluation]
interval_steps = 40
share = 0.1
[checkpoint]
interval_steps = 0
at_end = false
[output]
at_end = false
"""


@dataclass(frozen=True)
class Run:
    """One finetuning, and its losses on conversations that were held out."""

    method: str
    learning_rate: float
    before: float
    loss: float


def write_task(folder: Path) -> set[str]:
    """Run the tutorial's cell that writes the conversations; return their words."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    (source,) = ("".join(one["source"]) for one in cells if f'Path("{TASK}")' in str(one["source"]))
    with contextlib.chdir(folder), contextlib.redirect_stdout(None):
        exec(source, {})
    rows = (json.loads(line) for line in (folder / TASK).read_text().splitlines())
    said = [one["content"] for row in rows for one in row["messages"]]
    return {"user", "assistant", *" ".join(said).split()}


def write_text(folder: Path, words: set[str]) -> None:
    """Paragraphs of the manual; among them sentences and turns, each five times. Each is a document
    of its own, so that the base has learned the token of the end.
    """
    drawn = random.Random(0)
    paragraphs = [part for topic in topics.topics.values() for part in topic.split("\n\n")]
    known = sorted(words)
    sentences = [
        " ".join(drawn.choices(known, k=drawn.randint(5, 14))) for _ in range(len(paragraphs) // 20)
    ]
    turns = [TURNS.format(asked, said) for asked, said in pairwise(sentences)]
    paragraphs += (sentences + turns) * 5
    drawn.shuffle(paragraphs)
    rows = (json.dumps({"text": one}) + "\n" for one in paragraphs if one)
    (folder / TEXT).write_text("".join(rows))


def train(folder: Path, recipe: str) -> Sequence[RankEvaluation]:
    """Train in a process of its own; what was evaluated."""
    (folder / "recipe.toml").write_text(recipe)
    with tempfile.TemporaryDirectory(dir=folder) as metrics:
        done = subprocess.run(
            [sys.executable, "-m", "jupyter_mntrain.train", "recipe.toml"],
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MNTRAIN_METRICS_DIR": metrics},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"adapters: a training failed:\n{done.stdout[-2000:]}")
        lines = Path(metrics, "rank-0.ndjson").read_bytes().splitlines()
    evaluations = [line for line in lines if b'"evaluation"' in line[:30]]
    return [msgspec.json.decode(line, type=RankEvaluation) for line in evaluations]


def base_of(cache: Path, folder: Path) -> Path:
    """The base model, trained unless it is in the cache."""
    text = (folder / TEXT).read_bytes()
    base = cache / hashlib.sha256(BASE.encode() + text).hexdigest()[:16]
    if not base.exists():
        print("training the base", flush=True)
        told = train(folder, BASE)
        print(f"base: loss {told[0].loss:.3f}, after training {told[-1].loss:.3f}", flush=True)
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as beside:
            whole = Path(beside, "base")
            shutil.copytree(folder / "base", whole)
            whole.rename(base)
    return base


def main() -> int:
    arguments = _arguments()
    found: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder, write_task(folder))
        base = base_of(arguments.cache, folder)
        for method, rates in RATES.items():
            for rate in rates:
                settings = {
                    "base": json.dumps(str(base)),
                    "rank": 0 if method == "full" else arguments.rank,
                    "whole": '["embedding", "head"]' if method == WHOLE else "[]",
                    "rate": rate,
                }
                told = train(folder, FINETUNE.format(**settings, steps=arguments.steps))
                one = Run(method, rate, told[0].loss, told[-1].loss)
                found.setdefault(method, []).append(one)
                shown = f"{method:16} at {rate:.0e}: loss {one.loss:.5f}"
                print(f"{shown}, {one.before:.3f} before", flush=True)
    best = {method: min(runs, key=lambda one: one.loss) for method, runs in found.items()}
    for method in ("LoRA", WHOLE):
        ratio = best[method].loss / best["full"].loss
        print(f"{method}, rank {arguments.rank}: {ratio:.3f} x the loss of all weights")
    print(f"(limit {LIMIT} for the last)")
    if arguments.json:
        written = {method: [asdict(one) for one in runs] for method, runs in found.items()}
        arguments.json.write_text(json.dumps(written))
    return int(ratio > LIMIT)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument(
        "--cache",
        type=Path,
        default=platformdirs.user_cache_path("mntrain") / "benchmarks",
        help="folder of bases that were trained before",
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
