"""Loading a checkpoint: what comparing its shards with their checksums costs.

    python -m benchmarks.checked_loading [--preset llama-160m] [--repeats 5] [--ranks 1]

Trains one step, then starts the trainer again and again in fresh processes, which load that
checkpoint and end: in turn with checksums in its manifest and without, as an older version wrote
them, so that nothing is compared. *Loading* is from looking for the checkpoint until weights and
optimizer have their values; *start* is all of the trainer's start, and *CPU* what it computes, so
that nothing is hidden by doing it at another time. The files stay in the page cache, where loading
is quickest.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

MOST_RATIO = 1.05


def main() -> int:
    arguments = _arguments()
    if arguments.directory is not None:
        print(json.dumps(_start(arguments)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        arguments.directory = Path(name)
        _ranks(arguments)  # trains
        (manifest,) = Path(name).glob("step-*/manifest.json")
        whole = manifest.read_text()
        size = sum(json.loads(whole)["shard_bytes"])
        print(f"{size / 2**30:.2f} GiB in {arguments.ranks} shards", flush=True)
        plain = json.dumps({**json.loads(whole), "checksums": []})
        found: dict[str, list[dict[str, float]]] = {"compared": [], "not compared": []}
        for number in range(arguments.repeats + 1):
            for kind, content in (("compared", whole), ("not compared", plain)):
                manifest.write_text(content)
                took = _ranks(arguments)
                if number:  # the first pair fills caches
                    found[kind].append(took)
    return _report(found, size, arguments)


def _report(
    found: dict[str, list[dict[str, float]]], size: int, arguments: argparse.Namespace
) -> int:
    ratios = {}
    for what in ("loading", "start", "CPU"):
        pairs = list(zip(*(some for some in found.values()), strict=True))
        each = {kind: median(one[what] for one in some) for kind, some in found.items()}
        ratios[what] = median(one[what] / other[what] for one, other in pairs)
        print(
            f"{what}: {each['compared']:.3f} s compared, {each['not compared']:.3f} s not; ratio "
            f"{ratios[what]:.3f}, median of {len(pairs)} pairs "
            f"({each['compared'] / size * 2**30:.3f} and "
            f"{each['not compared'] / size * 2**30:.3f} s/GiB)"
        )
    is_met = ratios["loading"] <= MOST_RATIO
    print(f"required {MOST_RATIO}: {'met' if is_met else 'NOT met'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found))
    return int(not is_met)


def _ranks(arguments: argparse.Namespace) -> dict[str, float]:
    """Start the trainer once; the slowest rank's seconds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": str(arguments.ranks), "GLOO_SOCKET_IFNAME": "lo"}
    words = [sys.executable, "-m", "benchmarks.checked_loading", "--preset", arguments.preset]
    words += ["--directory", str(arguments.directory), "--ranks", str(arguments.ranks)]
    children = [
        subprocess.Popen(
            words,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(arguments.ranks)
    ]
    said = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise SystemExit("checked_loading: a rank failed")
    took = [json.loads(one.splitlines()[-1]) for one in said]
    return {what: max(one[what] for one in took) for what in took[0]}


def _start(arguments: argparse.Namespace) -> dict[str, float]:
    """As a rank: start the trainer, and train if there is no checkpoint yet."""
    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.telemetry.recorder import Recorder
    from jupyter_mntrain.train.checkpoint.saving import Checkpointing
    from jupyter_mntrain.train.loop import Trainer
    from jupyter_mntrain.train.world import join_world

    took: dict[str, float] = {}
    resume = Checkpointing.resume

    def timed(self: Checkpointing, *given: Any) -> int:
        begun = time.perf_counter()
        step = resume(self, *given)
        took["loading"] = time.perf_counter() - begun
        return step

    Checkpointing.resume = timed  # type: ignore[method-assign]
    words = [
        *(f"model.preset={arguments.preset}", "data.sequence_length=16", "train.steps=1"),
        *("train.batch_size=2", "pipeline.microbatches=2", "pipeline.split=even"),
        *("train.device=cpu", "model.dtype=float32", "optimizer.precision=plain"),
        *("report.to=[]", "output.at_end=false", f"checkpoint.directory={arguments.directory}"),
    ]
    recipe = parse_recipe("", words)
    with Recorder() as recorder, join_world("cpu", 600) as world:
        begun, computed = time.perf_counter(), time.process_time()
        trainer = Trainer(recipe, world, recorder)
        took["start"] = time.perf_counter() - begun
        took["CPU"] = time.process_time() - computed
        if not trainer.first_step:
            trainer.run()
    return took


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="llama-160m", help="the model")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of starts")
    parser.add_argument("--ranks", type=int, default=1, help="stages, one per rank")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
