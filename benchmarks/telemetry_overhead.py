"""Telemetry overhead: paired steps with and without telemetry in one process.

    python -m benchmarks.telemetry_overhead [--json FILE] [--pairs 600] [--every-step-traced]

"With" includes everything: timing each forward, backward and loss, counting bytes, reading memory
and writing the line. "Without" is the same step bare, on the same weights and the same kind of
batch; ranks agree in it on what all do next, as they do in every step. With
``--every-step-traced`` each step is also recorded action by action, which the trainer does with one
step in a thousand: the share of such a step is shown, and no limit is judged. The process is pinned
to one core with one thread. The order within a pair alternates (ABBA), so that drift cancels. Other
processes only make steps slower, so the fastest steps of each block of neighboring pairs are
compared; the interval is over the blocks.
The step is a worst case with many microbatches and few tokens: the cost is per step and microbatch,
and real steps are much longer.

"direct" times the same telemetry calls without work in between, after a bare step, so that caches
are realistically cold. It is valid even on a machine too busy for the paired comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jupyter_mntrain.train.loop import Trainer

REQUIRED_SHARE = 0.005
WARMUP_PAIRS = 5
BLOCK_PAIRS = 10
FASTEST = 3
RESAMPLES = 1000
OVERRIDES = (
    "model.preset=llama-tiny",
    "data.sequence_length=64",
    "data.vocabulary_size=512",
    "pipeline.microbatches=8",
    "train.batch_size=8",
    "train.device=cpu",
)


class Pair(NamedTuple):
    """Seconds of a step without (off) and with (on) telemetry."""

    wall_off_s: float
    wall_on_s: float
    cpu_off_s: float
    cpu_on_s: float
    direct_s: float


def main() -> int:
    arguments = _arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    from jupyter_mntrain.recipe.parse import parse_recipe
    from jupyter_mntrain.telemetry import Recorder
    from jupyter_mntrain.train.loop import Trainer
    from jupyter_mntrain.train.pipeline.steps import actions_of
    from jupyter_mntrain.train.pipeline.stopwatch import StageMeter
    from jupyter_mntrain.train.world import join_world

    steps = 2 * (arguments.pairs + WARMUP_PAIRS)
    recipe = parse_recipe("", [*OVERRIDES, f"train.steps={steps}"])
    microbatches = recipe.microbatches
    with (
        tempfile.TemporaryDirectory() as metrics,
        Recorder(Path(metrics)) as recorder,
        join_world("cpu", 60.0) as world,
    ):
        trainer = Trainer(recipe, world, recorder)

        def bare(step: int) -> None:
            _bare_step(trainer, step)

        def measured(step: int) -> None:
            queued = trainer.begin(step)
            sample, _ = queued.read(trainer.stopwatch)
            recorder.step(step=step + 1, **sample)
            if arguments.every_step_traced:
                actions = actions_of(queued, trainer.stopwatch, microbatches)
                recorder.traced(step + 1, sample["step_s"], actions)

        meter = StageMeter(trainer.stopwatch)
        spans = [meter.timed(int) for _ in range(3 * microbatches)]  # forward, loss, backward
        first = trainer.begin(0)
        sample, _ = first.read(trainer.stopwatch)

        def direct() -> None:
            meter.reset()
            for span in spans:
                span()
            marks = [trainer.stopwatch.mark() for _ in range(5)]
            sample["compute_s"] = meter.compute_s()
            sample["wait_s"] = trainer.stopwatch.seconds(marks[0], marks[-1])
            sample["memory_bytes"] = trainer.memory.bytes()
            recorder.step(**sample)
            if arguments.every_step_traced:
                actions = actions_of(first, trainer.stopwatch, microbatches)
                recorder.traced(1, sample["step_s"], actions)

        timed = _pairs(trainer.pipeline.measure, bare, measured, direct, arguments.pairs)
    return _report(timed, arguments)


def _bare_step(trainer: Trainer, step: int) -> None:
    """All that a step does besides recording."""
    import torch

    from jupyter_mntrain.telemetry.callbacks.device_number import DeviceNumber

    batch = trainer.batches.batch(step)
    loss = trainer.pipeline.forward_backward(batch, step)
    trainer.pipeline.share_gradients()
    squares = trainer.optimizer.gradient_squares()
    wishes = (*trainer.checkpoints.votes(), trainer.changes.vote())
    loss, norm, votes = trainer.optimizer.total(loss, squares, wishes)
    if trainer.spikes.applies(step + 1, loss, norm):
        trainer.optimizer.update(norm)
    trainer.syncs.after(step + 1)
    DeviceNumber(torch.cat([torch.stack([loss, norm]), votes])).read_all()


def _pairs(
    measure: Callable[..., None],
    bare: Callable[[int], None],
    measured: Callable[[int], None],
    direct: Callable[[], None],
    pairs: int,
) -> list[Pair]:
    found: list[Pair] = []
    for pair in range(pairs + WARMUP_PAIRS):
        wall: dict[bool, float] = {}
        cpu: dict[bool, float] = {}
        for offset, is_on in enumerate((False, True) if pair % 2 else (True, False)):
            measure(is_on=is_on)  # attaching happens once per run and is not part of a step
            begin, busy = time.perf_counter(), time.process_time()
            (measured if is_on else bare)(2 * pair + offset)
            wall[is_on] = time.perf_counter() - begin
            cpu[is_on] = time.process_time() - busy
        begin = time.perf_counter()
        direct()
        direct_s = time.perf_counter() - begin
        found.append(Pair(wall[False], wall[True], cpu[False], cpu[True], direct_s))
    return found[WARMUP_PAIRS:]


def _report(timed: Sequence[Pair], arguments: argparse.Namespace) -> int:
    shares = _shares([(pair.wall_off_s, pair.wall_on_s) for pair in timed])
    share = statistics.median(shares)
    low, high = _interval(shares)
    cpu_shares = _shares([(pair.cpu_off_s, pair.cpu_on_s) for pair in timed])
    cpu_share = statistics.median(cpu_shares)
    cpu_low, cpu_high = _interval(cpu_shares)
    off_s = statistics.median(pair.wall_off_s for pair in timed)
    on_s = statistics.median(pair.wall_on_s for pair in timed)
    direct = statistics.median(pair.direct_s for pair in timed) / off_s
    is_undecided = high - low > 2 * REQUIRED_SHARE
    is_met = share <= REQUIRED_SHARE and not is_undecided
    verdict = "met" if is_met else "NOT met"
    if arguments.every_step_traced:
        is_met, verdict = True, "not judged with every step traced"
    elif is_undecided:
        verdict = "undecided: the machine is too busy, run it again when it is quiet"
    print(f"median step {off_s * 1e3:.2f} ms without, {on_s * 1e3:.2f} ms with, {len(timed)} pairs")
    print(f"{'overhead':>10} {'median':>9}   95 % interval")
    print(f"{'wall':>10} {share:>+9.3%}   {low:+.3%} to {high:+.3%}")
    print(f"{'CPU':>10} {cpu_share:>+9.3%}   {cpu_low:+.3%} to {cpu_high:+.3%}")
    print(f"{'direct':>10} {direct:>+9.3%}")
    print(f"required {REQUIRED_SHARE:.1%} of wall time: {verdict}")
    if arguments.json:
        result = {
            "benchmark": "telemetry_overhead",
            "overhead": share,
            "interval_95": [low, high],
            "cpu_overhead": cpu_share,
            "cpu_interval_95": [cpu_low, cpu_high],
            "required": REQUIRED_SHARE,
            "met": is_met,
            "verdict": verdict,
            "direct_overhead": direct,
            "every_step_traced": arguments.every_step_traced,
            "pairs": len(timed),
            "step_s_without": off_s,
            "step_s_with": on_s,
            "recipe": list(OVERRIDES),
            "machine": platform.platform(),
        }
        Path(arguments.json).write_text(json.dumps(result, indent=2) + "\n")
    return 0 if is_met else 1


def _shares(pairs: Sequence[tuple[float, float]]) -> list[float]:
    """Overhead of each block: its fastest steps with telemetry over its fastest without."""

    def fastest(seconds: Iterable[float]) -> float:
        return statistics.fmean(sorted(seconds)[:FASTEST])

    blocks = [pairs[at : at + BLOCK_PAIRS] for at in range(0, len(pairs), BLOCK_PAIRS)]
    return [
        fastest(on for _, on in block) / fastest(off for off, _ in block) - 1 for block in blocks
    ]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median."""
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--every-step-traced", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
