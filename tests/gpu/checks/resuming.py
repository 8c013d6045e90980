"""Check 4: a killed training goes on as if nothing had happened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from jupyter_mntrain.launch.checkpoints.directory import step_in
from tests.gpu.findings import Bench, Item, failed, judged
from tests.gpu.ranks import run_cases
from tests.gpu.settings import REPEATABLE, case

STEPS, INTERVAL, DIES_IN = 12, 4, 6
COMPARED = 3
"""Losses after the checkpoint."""


def check_resuming(bench: Bench) -> Iterator[Item]:
    model = ("model.preset=llama-8m", *REPEATABLE) if bench.is_real else ()
    steps = (*model, f"train.steps={STEPS}")
    kept, ended = bench.directory / "kept", bench.directory / "ended"
    saving = (*steps, *_saving(kept, INTERVAL))
    whole = case(bench, "whole", steps, watch="weights")
    short = (*model, f"train.steps={INTERVAL}", *_saving(ended, 0))
    dying = case(bench, "killed", saving, watch="death", dies_in=DIES_IN, checkpoints=str(kept))
    # In one process, which the last case ends: starting another takes longer than all of them.
    answers = run_cases(bench, [whole, case(bench, "ended", short, watch="weights"), dying])
    killed = answers.pop("killed")
    for answer in answers.values():
        if answer.error:
            yield failed("without being killed", answer.error)
            return
    if killed.error is None or "ended with -9" not in killed.error:
        yield failed("kill", killed.error or "it was not killed: no checkpoint was complete")
        return
    yield _same_checkpoint(kept, ended)
    resumed = run_cases(bench, [case(bench, "resumed", saving, watch="weights", attempt=2)])
    answer = resumed["resumed"]
    if answer.error:
        yield failed("resume", answer.error)
        return
    count = len(answer.losses)
    problem = None
    found, expected = (one[-count:][:COMPARED] for one in (answer.losses, answers["whole"].losses))
    if count >= STEPS:
        problem = "it began again at the first step"
    elif found != expected:
        problem = f"the next losses are {found} instead of {expected}"
    yield judged("resume, the next losses bit-equal", problem, resumed_after=STEPS - count)


def _saving(directory: Path, interval: int) -> tuple[str, ...]:
    own = f"checkpoint.directory={directory}"
    return (own, f"checkpoint.interval_steps={interval}", "checkpoint.keep=1000")


def _same_checkpoint(kept: Path, ended: Path) -> Item:
    """A save in the background holds the step that it is named after, not a later one."""
    name = "a save during later steps holds its own step"
    mine, theirs = (_tensors(one) for one in (kept, ended))
    if not theirs or not mine:
        return failed(name, f"no checkpoint of step {INTERVAL} in {kept if theirs else ended}")
    return judged(name, None if mine == theirs else f"step {INTERVAL} has other tensors")


def _tensors(directory: Path) -> dict[str, str]:
    """Hashes of the tensors of the checkpoint, by name."""
    from safetensors.numpy import load_file

    return {
        name: hashlib.sha256(one.tobytes()).hexdigest()
        for path in sorted(directory.rglob("*.safetensors"))
        if step_in(path.parent.name) == INTERVAL
        for name, one in load_file(path).items()
    }
