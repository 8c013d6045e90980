"""Watches: what is looked at while the trainer of an acceptance case runs."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

Watch = Callable[[dict[str, Any]], AbstractContextManager[dict[str, Any]]]
"""Given a case; what it yields becomes part of the case's result."""

OBSERVED = 3
"""Step that is looked at, from 0: the first ones also allocate, compile and connect."""
STEADY = slice(3, 6)
PROFILED = 7
"""Steps that are timed, and the one under the profiler, which slows all after its start."""
POLL_S = 0.01
WAITED = "called a synchronizing CUDA operation"

PACKAGE = "jupyter_mntrain"


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Put another method in the place of one that it may call."""
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def nothing(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {}


@contextmanager
def repeatable() -> Iterator[None]:
    """Have torch choose kernels that give the same bits each time."""
    import torch

    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of operations that have no such kernel
            yield
    finally:
        torch.use_deterministic_algorithms(mode=False)


@contextmanager
def weights(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Hash the trained weights of a repeatable run."""
    from jupyter_mntrain.train.loop import Trainer

    seen: dict[str, Any] = {}

    def make(run: Any) -> Any:
        def hashing(trainer: Any) -> Any:
            result = run(trainer)
            digest = hashlib.sha256()
            for name, one in sorted(trainer.pipeline.parameters().items()):
                digest.update(name.encode())
                digest.update(one.detach().float().cpu().numpy().tobytes())
            seen["weights"] = digest.hexdigest()
            return result

        return hashing

    with repeatable(), replaced(Trainer, "run", make):
        yield seen


@contextmanager
def death(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Kill this process, in a repeatable run, once a checkpoint is complete.

    It trains on during the save up to step ``dies_in``, and there waits for the disk.
    """
    from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory
    from jupyter_mntrain.train.loop import Trainer

    directory = CheckpointDirectory(Path(case["checkpoints"]))

    def make(step: Any) -> Any:
        def dying(trainer: Any, number: int, *more: Any) -> Any:
            if number >= case["dies_in"] and directory.manifests():
                os.kill(os.getpid(), signal.SIGKILL)
            while number == case["dies_in"] and trainer.checkpoints.votes()[0]:
                time.sleep(POLL_S)
            return step(trainer, number, *more)

        return dying

    with repeatable(), replaced(Trainer, "begin", make):
        yield {}


def _in_step(observed: int, look: Callable[[Callable[[], Any]], Any]) -> Callable[[Any], Any]:
    """Look at one step."""

    def make(step: Any) -> Any:
        def looked_at(trainer: Any, number: int, *more: Any) -> Any:
            def go() -> Any:
                return step(trainer, number, *more)

            return look(go) if number == observed else go()

        return looked_at

    return make


@contextmanager
def waits(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Note where a step waits for the GPU."""
    import torch

    from jupyter_mntrain.train.loop import Trainer

    seen: dict[str, Any] = {"waits": []}

    def note(message: Any, _category: Any, filename: str, line: int, *_: Any) -> None:
        if WAITED in str(message):  # setting the mode warns, too
            seen["waits"].append(our_place() or f"{Path(filename).name}:{line}")

    def look(go: Callable[[], Any]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = note
            torch.cuda.set_sync_debug_mode("warn")
            try:
                return go()
            finally:
                torch.cuda.set_sync_debug_mode("default")

    with replaced(Trainer, "begin", _in_step(OBSERVED, look)):
        yield seen
    seen["waits"] = sorted(set(seen["waits"]))


def our_place() -> str:
    """The innermost line of the product that is being run."""
    frame: Any = sys._getframe()
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if PACKAGE in path.parts and "tests" not in path.parts:
            parts = path.parts[path.parts.index(PACKAGE) + 1 :]
            return f"{'/'.join(parts)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextmanager
def profile(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Kernels of one step, its spans next to them, and the estimate of the memory."""
    import torch

    from jupyter_mntrain.train.loop import Trainer
    from jupyter_mntrain.train.pipeline.stopwatch import Stopwatch
    from tests.gpu.timeline import MARKER, Kernel, beside_kernels, recorded_spans

    seen: dict[str, Any] = {}
    marks: list[Any] = []

    def with_marker(mark: Any) -> Any:
        def marked(stopwatch: Any) -> Any:
            marks.append(mark(stopwatch))
            torch.cuda._sleep(1)
            return marks[-1]

        return marked

    def look(go: Callable[[], Any]) -> Any:
        torch.cuda.synchronize()  # the step before may still be on its way
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            with replaced(Stopwatch, "mark", with_marker):
                step = go()
            torch.cuda.synchronize()
        kernels = [
            Kernel(event.name, event.time_range.start / 1e6, event.time_range.end / 1e6)
            for event in profiler.events()
            if event.device_type == torch.autograd.DeviceType.CUDA
        ]
        seen["kernels"] = sorted({one.name for one in kernels if MARKER not in one.name})
        spans = recorded_spans(step, marks, Stopwatch(torch.device("cuda")))
        seen["timeline"] = beside_kernels(spans, len(marks), kernels)
        return step

    def estimating(run: Any) -> Any:
        def estimated(trainer: Any) -> Any:
            seen["estimate_bytes"] = _estimate(trainer)
            return run(trainer)

        return estimated

    with replaced(Trainer, "begin", _in_step(PROFILED, look)), replaced(Trainer, "run", estimating):
        yield seen


def _estimate(trainer: Any) -> int:
    from jupyter_mntrain.recipe.memory import memory_estimate
    from jupyter_mntrain.train.model.decoder import model_shape, read_config

    shapes = trainer.pipeline.stage_shapes()
    vocabulary = shapes[0].parameters[0][0]
    shape = model_shape(read_config(trainer.recipe.model, vocabulary))
    return int(memory_estimate(shape, trainer.recipe, shapes).total)


WATCHES: dict[str, Watch] = {
    "none": nothing,
    "weights": weights,
    "death": death,
    "waits": waits,
    "profile": profile,
}
