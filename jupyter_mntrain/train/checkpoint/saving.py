"""Saving: decides when and what to save, copies it between two steps, and writes it in a thread."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, sqrt
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Protocol

import msgspec
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import RUN_ATTEMPT_VARIABLE
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.system_errors import KINDS, told_of
from jupyter_mntrain.model.records.checkpoint import Manifest, RunFigures
from jupyter_mntrain.recipe.layout import Grid
from jupyter_mntrain.recipe.sections import CheckpointSection, Recipe
from jupyter_mntrain.telemetry.controls import ControlReader
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.checkpoint.checksums import Checksums, checksum
from jupyter_mntrain.train.checkpoint.durable import DurableCopies, durable_copies
from jupyter_mntrain.train.checkpoint.neighbors import Neighbors, refuse_to_fill, sync
from jupyter_mntrain.train.checkpoint.places import directory_of, unwritable
from jupyter_mntrain.train.checkpoint.resuming import (
    COMPARED,
    Beginning,
    find_beginning,
    load,
    name_of_rows,
    random_state,
    refuse_apart,
    refuse_other,
    refuse_other_adapters,
    replicas_apart,
    set_random_state,
)
from jupyter_mntrain.train.optimizer.algorithms import rows_of_state
from jupyter_mntrain.train.optimizer.diloco import MOMENTUM, OuterSyncs
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.optimizer.spikes import COUNTS, HISTORY, Spikes
from jupyter_mntrain.train.pipeline.pipeline import Pipeline
from jupyter_mntrain.train.world import World, agree, gathered

# Save intervals: when the next checkpoint is due, by steps, minutes or how often jobs fail.


GUESSED_SAVE_S = 5.0
"""How long a save is taken to hold training up before the first one, for
checkpoint.failure_hours."""
LEAST_INTERVAL_S = tunables.seconds("train.least_save_interval_s")


class SaveIntervals:
    """Measures the time since the last save, and how long saves delay training.

    Args:
        section: may be replaced between two steps.
    """

    def __init__(self, section: CheckpointSection) -> None:
        self.section = section
        self._begun_s = monotonic()
        self._held_up_s: float | None = None

    def saved(self, held_up_s: float) -> None:
        """Restart the interval after a save.

        Args:
            held_up_s: that the steps waited for this save.
        """
        self._begun_s, self._held_up_s = monotonic(), held_up_s

    @property
    def every_s(self) -> float:
        """The seconds between checkpoints; 0 if steps are counted.

        By failures it is what loses least in all, to saves and to steps that are done again: the
        square root of twice the time of a save times that between failures (Young 1974).
        """
        if hours := self.section.failure_hours:
            save_s = GUESSED_SAVE_S if self._held_up_s is None else self._held_up_s
            return max(LEAST_INTERVAL_S, sqrt(2 * save_s * hours * 3600))
        return 60 * self.section.interval_minutes

    @property
    def is_late(self) -> bool:
        """Whether the next save is due by time, if time is counted."""
        every_s = self.every_s
        return bool(every_s) and monotonic() - self._begun_s >= every_s

    def is_due(self, step: int, *, is_time: bool) -> bool:
        """Whether to save after this step.

        Args:
            is_time: rank 0 has found that it :attr:`is_late`; clocks of ranks differ.
        """
        if self.section.counts_time:
            return is_time
        every = self.section.interval_steps
        return bool(every) and step % every == 0


# Staging: copies a state from a GPU to host memory through pinned buffers of bounded size.
#
# A copy into ordinary memory makes the driver stage it in small pieces, one after another. Pinning
# the whole copy would take the memory from everything else: an 8B model with its optimizer is 112
# GB.


BUFFER_BYTES = 64 << 20
"""Size of each of two buffers: while one is filled, the other is emptied."""


class Transfers(Protocol):
    """Copies data from a GPU into host buffers."""

    def buffer(self, size: int) -> torch.Tensor:
        """Allocate a buffer of ``size`` bytes."""

    def begin(self, buffer: torch.Tensor, source: torch.Tensor) -> Any:
        """Start to fill a buffer; return a handle for :meth:`wait`."""

    def wait(self, begun: Any) -> None:
        """Wait until the buffer is filled."""


class CudaTransfers:
    """Queues transfers after the work on the current stream, such as the optimizer's step."""

    def buffer(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def begin(self, buffer: torch.Tensor, source: torch.Tensor) -> Any:
        buffer.copy_(source, non_blocking=True)
        if not source.is_cuda:  # counts of steps are on the host, and copied already
            return None
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(source.device))
        return event

    def wait(self, begun: Any) -> None:
        if begun is not None:
            begun.synchronize()


class Staging:
    """Copies tensors to host memory.

    Args:
        transfers: for tensors on a GPU; ``None`` copies them directly, as those on the CPU.
    """

    def __init__(self, transfers: Transfers | None, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._transfers = transfers
        self._buffer_bytes = buffer_bytes
        self._buffers: list[torch.Tensor] = []

    def copies(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copy all tensors; once this returns, they may change."""
        transfers = self._transfers
        if transfers is not None and not self._buffers:
            try:
                self._buffers = [transfers.buffer(self._buffer_bytes) for _ in range(2)]
            except RuntimeError:  # no memory to pin: a slower copy is better than no checkpoint
                transfers = None
        if transfers is None:
            return {
                name: one.detach().to("cpu", copy=True).contiguous()
                for name, one in tensors.items()
            }
        found = {name: torch.empty(one.shape, dtype=one.dtype) for name, one in tensors.items()}
        filled: list[tuple[Any, torch.Tensor, torch.Tensor]] = []
        for number, (source, copy) in enumerate(self._pieces(tensors, found)):
            buffer = self._buffers[number % 2][: len(source)]
            if len(filled) == 2:
                _empty(transfers, *filled.pop(0))
            filled.append((transfers.begin(buffer, source), buffer, copy))
        for one in filled:
            _empty(transfers, *one)
        return found

    def _pieces(
        self, tensors: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]
    ) -> Any:
        for name, tensor in tensors.items():
            both = (_bytes(tensor.detach()), _bytes(found[name]))
            yield from zip(*(torch.split(one, self._buffer_bytes) for one in both), strict=True)


def staging(device: torch.device) -> Staging:
    """Make the staging for tensors on a device."""
    return Staging(CudaTransfers() if device.type == "cuda" else None)


def _empty(transfers: Transfers, begun: Any, buffer: torch.Tensor, copy: torch.Tensor) -> None:
    transfers.wait(begun)
    copy.copy_(buffer)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


# Background saving: copies tensors between two steps and writes them in a thread.
#
# A checkpoint is complete once every rank's shard is on disk. Ranks find that out in the all-reduce
# that every step does anyway, so no rank waits for another's disk.


class _Written(Record, frozen=True):
    """The result of one rank's part of a save."""

    host: str
    size_bytes: int = 0
    problem: Problem | None = None
    checksum: str = ""


_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
"""How safetensors, which is written in Rust, names an error of the system."""


def _not_saved(step: int, host: str, error: Exception) -> Problem:
    """Return the problem of a node that could not save its part of a step."""
    words = told_of(error) if isinstance(error, OSError) else str(error)
    number = error.errno if isinstance(error, OSError) else None
    if found := _SYSTEM_ERROR.search(words):
        number = int(found[1])
    kind = KINDS.get(number or 0, Kind.ERROR)
    fix = "see the whole log, and check checkpoint.directory on that node"
    return Problem(
        kind=kind,
        cause=f"step {step} could not be saved: {words or type(error).__name__}",
        fix=fix if kind is Kind.ERROR else fix_of(kind),
        node=host,
        step=step,
    )


@dataclass
class Saver:
    """Saves one rank's state, one step at a time.

    Args:
        directory: on this node; may be shared with the others.
        keep: number of checkpoints to keep.
        keep_best: number of the best ones to keep, too.
        copies: 2 = each shard also goes to the next node.
        attempt: number of this attempt.
        digests, recipe, figures: for the manifest; figures are the head's.
        say: prints one line per save.
        used: the step of a checkpoint that is being read, and stays for now.
    """

    directory: CheckpointDirectory
    world: World
    keep: int
    copies: int
    attempt: int
    digests: dict[str, str]
    say: Callable[[str], None]
    recipe: dict[str, Any] | None = None
    figures: RunFigures | None = None
    keep_best: int = 0
    used: int | None = None
    _step: int | None = None
    _loss: float | None = None
    _written: _Written | None = None
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._hosts = tuple(gathered(self.world, self.world.host))
        self._staging = staging(self.world.device)
        self._neighbors = Neighbors(self.world, self._hosts) if self.copies > 1 else None

    @property
    def is_pending(self) -> bool:
        """Whether a save is in progress; the same on every rank at every step."""
        return self._step is not None

    @property
    def is_writing(self) -> bool:
        """Whether this rank is still writing its part."""
        return self._written is None and self.is_pending

    def begin(
        self, step: int, tensors: Mapping[str, torch.Tensor], evaluation_loss: float | None = None
    ) -> None:
        """Copy the state to host memory and write it in the background.

        Args:
            step: finished steps.
            evaluation_loss: after them, if it was measured.
        """
        copies = self._staging.copies(tensors)
        self._step, self._written, self._loss = step, None, evaluation_loss
        self._thread = threading.Thread(
            target=self._write, args=(step, copies), name="checkpoint", daemon=True
        )
        self._thread.start()

    def finish(self) -> Manifest | Problem:
        """Wait for the save in progress; return its manifest, or why it failed.

        Collective, at the same step. An error such as a full disk is logged, and training continues
        with the previous checkpoint.
        """
        step = self._step
        assert step is not None and self._thread is not None  # noqa: S101, PT018 - it is pending
        self._thread.join()
        parts: list[_Written] = [_Written(host="")] * self.world.size
        dist.all_gather_object(parts, self._written)
        self._step = self._thread = None
        problem = next((part.problem for part in parts if part.problem is not None), None)
        manifest = self._manifest(step, parts)
        if problem is None:
            problem = self._publish(manifest)
        if self.world.is_head:
            size = sum(part.size_bytes for part in parts)
            self.say(
                f"{problem} Training continues."
                if problem is not None
                else f"saved step {step}, {size / 1e6:,.1f} MB"
            )
        if problem is not None and self.world.local_rank == 0:
            self.directory.discard(step)
        return manifest if problem is None else problem

    def _manifest(self, step: int, parts: Sequence[_Written]) -> Manifest:
        return Manifest(
            step=step,
            attempt=self.attempt,
            shard_bytes=tuple(part.size_bytes for part in parts),
            checksums=tuple(part.checksum for part in parts),
            digests=self.digests,
            hosts=self._hosts,
            recipe=self.recipe,
            evaluation_loss=self._loss,
            figures=gathered(self.world, self.figures)[0],
        )

    def _publish(self, manifest: Manifest) -> Problem | None:
        """Publish on every node; return why that failed on any of them, or ``None``."""
        problem: Problem | None = None
        if self.world.local_rank == 0:
            try:
                self.directory.publish(manifest)
                self.directory.prune(self.keep, self.keep_best, used=self.used)
            except OSError as error:
                problem = _not_saved(manifest.step, self.world.host, error)
        return next((one for one in gathered(self.world, problem) if one), None)

    def _write(self, step: int, tensors: dict[str, torch.Tensor]) -> None:
        error: Exception | None = None
        size_bytes, path, summed = 0, None, ""
        try:
            folder = self.directory.begin(step)
            refuse_to_fill(folder, sum(tensor.nbytes for tensor in tensors.values()))
            path = folder / shard_name(self.world.rank)
            save_file(tensors, path)
            sync(path)
            size_bytes, summed = path.stat().st_size, checksum(path)
        except Exception as trouble:  # noqa: BLE001 - all ranks must learn of any error
            error = trouble
        if self._neighbors is not None:
            # Also after an error: the neighbors wait.
            folder_of = partial(self.directory.begin, step)
            error = self._neighbors.exchange(path if error is None else None, folder_of) or error
        problem = None if error is None else _not_saved(step, self.world.host, error)
        self._written = _Written(self.world.host, size_bytes, problem, summed)


# Checkpoint policy: when to save, and what.


STOPPED_S = 10.0
"""Longest wait for that copy if the run was stopped: less than what preempts it gives."""


@dataclass
class Checkpointing:
    """Saves at the recipe's interval and on request, after the same step on all ranks.

    Each rank's requests travel with the all-reduce of every step (:meth:`votes`), so all ranks act
    on them after the same step.

    Args:
        recipe: when to save may be replaced between two steps.
        digests: this run's, compared with a checkpoint's.
        grid: tells which ranks hold the same parameters.
        model: holds the parameters to save.
        syncs: of replicas that sync rarely, each of which has weights of its own in between.
        spikes: whose state is saved, too.
        figures: of this attempt after so many steps.
        say: prints a line to the job's log.
    """

    recipe: Recipe
    world: World
    recorder: Recorder
    digests: Mapping[str, str]
    grid: Grid
    model: Pipeline
    syncs: OuterSyncs
    spikes: Spikes
    figures: Callable[[int], RunFigures]
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        attempt = int(os.environ.get(RUN_ATTEMPT_VARIABLE, "1"))
        path = directory_of(self.recipe, os.environ)
        self._digests = {one: self.digests[one] for one in COMPARED if one in self.digests}
        self._directory = None if path is None else CheckpointDirectory(path, attempt)
        self._saver: Saver | None = None
        if self._directory is not None:
            self._saver = Saver(
                self._directory,
                self.world,
                keep=self.recipe.checkpoint.keep,
                keep_best=self.recipe.checkpoint.keep_best,
                copies=self.recipe.checkpoint.copies,
                attempt=attempt,
                digests=self._digests,
                say=self._saying,
            )
        self._durable: DurableCopies | None = None
        self._intervals = SaveIntervals(self.recipe.checkpoint)
        self._wishes = ControlReader()
        self._still_writing = 0.0
        self._is_time = False
        self._is_save_wanted = False
        self._is_stop_wanted = False
        self._is_scheduled = False
        self._lowest = inf
        self._earlier: RunFigures | None = None
        self.saved_step: int | None = None
        """Step of the newest complete checkpoint, the same on all ranks."""

    def _saying(self, line: str) -> None:
        self.say(f"checkpoint: {line}")

    @property
    def directory(self) -> Path | None:
        """This run's checkpoint directory on this node, if there is one."""
        return None if self._directory is None else self._directory.path

    def resume(self, optimizer: Optimizer, checksums: Checksums) -> int:
        """Load the newest checkpoint; return the number of finished steps.

        Args:
            checksums: begun before.

        Raises:
            RecipeError: it was made with another model or other data, or is damaged; or the job
                was to go on from one that is not there.
        """
        if self._directory is None:
            return 0
        # Before the first step, rather than after hours of training.
        path = self._directory.path
        agree(self.world, unwritable(path, "save checkpoints", "checkpoint.directory"))
        self._durable = durable_copies(
            self.world, self.recipe, self._directory, self._saying, os.environ
        )
        copies = None if self._durable is None else self._durable.target
        own = (self.world, self._directory, os.environ)
        begin = find_beginning(*own, copies, self._saying, checksums)
        checksums.end()
        step = 0 if begin is None else begin.found.manifest.step
        if begin is not None:
            self.saved_step = step
            self._earlier = begin.found.manifest.figures
            refuse_other(begin, self._digests)
            refuse_other_adapters(begin, self.recipe.adapters)
            refuse_apart(begin, 0 if self.syncs.are_rare else self.grid.replicas)
            self._restore(begin, optimizer)
            if self.world.is_head:
                self.say(f"checkpoint: resuming after step {step} of {begin.directory.path}")
        if self.world.local_rank == 0:
            damaged = {} if begin is None else begin.found.damaged
            for newer, (aside, wrong) in self._directory.clean(last=step).items():
                lost = damaged.get(newer, ())
                why = " and ".join(map(shard_name, lost)) + " is not what was saved" if lost else ""
                why = why or wrong or "not all of its shards are on the nodes of this job"
                self._saying(f"{aside.name}, newer than step {step}, was skipped and kept: {why}")
        dist.barrier()  # no rank saves into a directory that is still being cleaned
        if begin is not None and self._durable is not None and begin.directory is self._directory:
            self._durable.begin_missing(begin.found.manifest, self.recipe.checkpoint)
        return step

    def votes(self) -> Sequence[int]:
        """Return this rank's votes in the step's all-reduce.

        They are: still writing, still copying, save, stop, time is up.
        """
        is_writing = self._saver is not None and self._saver.is_writing
        is_copying = self._durable is not None and self._durable.vote()
        # Only rank 0 relays requests, and the time: they reach one node before another.
        save = self.world.is_head and self._wishes.wants_save()
        stop = self.world.is_head and self._wishes.wants_stop()
        is_time = self.world.is_head and self._saver is not None and self._intervals.is_late
        return int(is_writing), int(is_copying), int(save), int(stop), int(is_time)

    def count(self, sums: Sequence[float]) -> None:
        """Take the sums of all ranks' :meth:`votes`."""
        self._still_writing, still_copying, save, stop, is_time = sums
        if self._durable is not None:
            self._durable.count(still_copying)
        self._is_save_wanted, self._is_stop_wanted = save > 0, stop > 0
        self._is_time = is_time > 0

    def is_due(self, step: int) -> bool:
        """Whether :meth:`after` would save or stop after this step, by the votes counted so far."""
        is_wanted = self._is_save_wanted or self._is_stop_wanted
        return is_wanted or step == self.recipe.steps or self._is_scheduled_after(step)

    def _is_scheduled_after(self, step: int) -> bool:
        self._intervals.section = self.recipe.checkpoint
        return self._intervals.is_due(step, is_time=self._is_time)

    def after(
        self,
        step: int,
        optimizer: Optimizer,
        evaluation_loss: float | None = None,
        *,
        is_last: bool = False,
    ) -> bool:
        """Save between two steps if it is due; return whether to stop.

        Args:
            evaluation_loss: after this step, if it was measured; the same on all ranks.
            is_last: the run ends here, before the last step of the recipe.
        """
        loss = (
            evaluation_loss if evaluation_loss is not None and isfinite(evaluation_loss) else None
        )
        stops = self._is_stop_wanted or is_last
        if self._saver is None:
            return stops
        if self._saver.is_pending and not self._still_writing:
            self._finish(self._saver)
        if self._durable is not None and self._durable.is_over:
            self._durable.finish()
        is_last = stops or step == self.recipe.steps
        is_kept = self._is_stop_wanted or self.recipe.checkpoint.at_end
        if self._is_save_wanted or (is_last and is_kept):
            self._finish(self._saver)  # at most one save at a time
            self._wishes.saved()
            self._is_scheduled = not (self._is_save_wanted or self._is_stop_wanted)
            self._begin(self._saver, step, optimizer, loss)
        elif self._is_scheduled_after(step):
            if self._is_lowest(loss):
                self._finish(self._saver)  # it must not be left out
            if not self._saver.is_pending:
                self._is_scheduled = True
                self._begin(self._saver, step, optimizer, loss)
        return stops

    def _is_lowest(self, loss: float | None) -> bool:
        """Whether this is the best evaluation of the attempt, if the best checkpoints are kept."""
        if loss is None or not self.recipe.checkpoint.keep_best or loss >= self._lowest:
            return False
        self._lowest = loss
        return True

    def figures_after(self, step: int) -> RunFigures:
        """Return the figures of this attempt and of those that it continues."""
        return self.figures(step).after(self._earlier)

    def close(self) -> None:
        """Wait for the last save. Collective."""
        if self._saver is not None:
            self._finish(self._saver)

    def finish_copies(self) -> None:
        """Wait for the durable copy of the last save; not long if the run was stopped. Collective.

        Not for long if the run was stopped: what stops it may not wait.
        """
        if self._durable is not None:
            most_s = STOPPED_S if self._is_stop_wanted else inf
            self._durable.close(self.recorder.progress, most_s)

    def _begin(self, saver: Saver, step: int, optimizer: Optimizer, loss: float | None) -> None:
        begin_s = perf_counter()
        apart = self.grid.replicas if self.syncs.are_rare else 0
        common, own = self._state(optimizer, apart)
        # Replicas hold the same state: each writes its share.
        mine = sorted(common)[self.grid.replica_of(self.world.rank) :: self.grid.replicas]
        state = {name: common[name] for name in mine} | own | random_state(self.world)
        if self.world.is_head:  # all ranks have the same
            state |= self.spikes.state()
        self.recorder.progress("saving a checkpoint", 0, 1)
        section = self.recipe.checkpoint
        saver.keep, saver.keep_best = section.keep, section.keep_best
        saver.recipe = msgspec.to_builtins(self.recipe)
        # Only the head's are kept; the median of all steps takes time.
        saver.figures = self.figures_after(step) if self.world.is_head else None
        saver.begin(step, state, loss)
        self._intervals.saved(perf_counter() - begin_s)
        self._still_writing = 1.0  # until votes say otherwise that were cast after this

    def _state(
        self, optimizer: Optimizer, apart: int
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return this rank's tensors by their names in a checkpoint, as views.

        First those that all replicas share, then those of its replica alone.

        Args:
            apart: replicas that have weights of their own; of fewer or more, each takes those of
                one of them.
        """
        held: dict[str, torch.Tensor] = {
            f"model/{name}": one for name, one in self.model.parameters().items()
        }
        held |= {f"optimizer/{name}": one for name, one in optimizer.state().items()}
        if not apart:
            return self._by_rows(held), {}
        replica = self.grid.replica_of(self.world.rank) % apart
        own = {f"replica-{replica}/{name}": one for name, one in held.items()}
        return self._by_rows(self.syncs.state()), self._by_rows(own)

    def _by_rows(self, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Add the row ranges to the names of sharded parameters."""
        parameters, rows = self.model.parameters(), self.model.rows()
        if not rows:
            return state
        found = {}
        for name, one in state.items():
            kind, _, parameter = name.rpartition("/")
            mine = None
            if parameter in rows:
                mine = rows_of_state(kind, one, parameters[parameter], rows[parameter])
            found[name if mine is None else name_of_rows(name, *mine)] = one
        return found

    def _finish(self, saver: Saver) -> None:
        if not saver.is_pending:
            return
        saver.used = None if self._durable is None else self._durable.step
        saved = saver.finish()
        self.recorder.progress("saving a checkpoint", 1, 1)
        problem = saved if isinstance(saved, Problem) else None
        # What training waits for it, the loop counts: most is written while it goes on.
        self.recorder.saved(
            saved.step or 0, is_scheduled=self._is_scheduled, took_s=0.0, problem=problem
        )
        if isinstance(saved, Manifest):
            self.saved_step = saved.step
            if self._durable is not None:
                self._durable.begin(saved, self.recipe.checkpoint)

    def _restore(self, begin: Beginning, optimizer: Optimizer) -> None:
        found = begin.found
        apart = replicas_apart(found.manifest)
        common, own = self._state(optimizer, apart)
        state, means = common | own, self.syncs.expected_means()
        rows_of = dict(zip(means, self._by_rows(means), strict=True))
        random = random_state(self.world) if found.manifest.world_size == self.world.size else {}
        loaded = load(
            self.world,
            begin.directory,
            found,
            [*state, *random, HISTORY, COUNTS, *rows_of.values()],
            progress=self.recorder.progress,
        )
        begins = [name for name in common if name.startswith(MOMENTUM)]
        if not any(name in loaded for name in begins):
            # It was saved without momentum: that begins as it is, with zeros.
            state = {name: one for name, one in state.items() if name not in begins}
        agree(self.world, _unfit(found.manifest.step, state, loaded))
        with torch.no_grad():
            for name, one in state.items():
                one.copy_(loaded[name])
        if not apart:
            self.syncs.begin_at(found.manifest.step)
        arrived = {name: loaded[rows] for name, rows in rows_of.items() if rows in loaded}
        self.syncs.go_on(found.manifest.step, arrived)
        optimizer.resume_after(found.manifest.step)
        self.spikes.restore(loaded)
        set_random_state(self.world, loaded)


def _unfit(
    step: int, state: Mapping[str, torch.Tensor], loaded: Mapping[str, torch.Tensor]
) -> RecipeError | None:
    """Return why the loaded tensors do not fit this rank; ``None`` if they do."""
    missing = [name for name in state if name not in loaded]
    if missing:
        cause = f"checkpoint {step} lacks {missing[0]}"
        fix = "delete it to use the previous checkpoint"
        if "optimizer/" in missing[0]:
            fix = (
                "set optimizer.kind, optimizer.precision and model.dtype to the values the "
                "checkpoint was saved with"
            )
        return RecipeError(cause, fix=fix)
    for name, one in state.items():
        if loaded[name].shape != one.shape:
            shapes = f"{tuple(loaded[name].shape)}, not {tuple(one.shape)}"
            return RecipeError(
                f"checkpoint {step} has {name} of shape {shapes}",
                fix="use the settings that it was saved with: for example adapters.rank",
            )
    return None
