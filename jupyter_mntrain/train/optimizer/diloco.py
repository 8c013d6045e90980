"""DiLoCo: replicas train independently and average what they have learned every so many steps."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from jupyter_mntrain.model.quantities import by_size
from jupyter_mntrain.recipe.memory import shown_bytes
from jupyter_mntrain.recipe.sections import BLOCK, SCALE_BYTES, DataParallelSection, Recipe
from jupyter_mntrain.telemetry.progress import EVERY_S, ProgressWriter, Tally
from jupyter_mntrain.train.model.decoder import HEAD
from jupyter_mntrain.train.model.stages import DTYPES
from jupyter_mntrain.train.optimizer.optimizer import Optimizer
from jupyter_mntrain.train.pipeline.pipeline import BUCKET_BYTES, Pipeline, ring_bytes
from jupyter_mntrain.train.pipeline.stopwatch import StageMeter
from jupyter_mntrain.train.world import Groups

# Averaging over replicas, in the precision that goes over the network.


MOST = 127
"""Largest absolute value used in an int8."""


def average(values: torch.Tensor, dtype: str, group: dist.ProcessGroup) -> tuple[torch.Tensor, int]:
    """Average over all ranks of a group; all get the same bits. Collective.

    Args:
        values: flat, float32; may be overwritten.
        dtype: of what is sent: ``float32``, ``bfloat16`` or ``int8``.

    Returns:
        The mean in float32, and the bytes that this rank sent, and as many received.
    """
    count = dist.get_world_size(group)
    if dtype == "int8":
        return _average_quantized(values, count, group)
    sent = values.to(DTYPES[dtype])
    dist.all_reduce(sent, group=group)
    return sent.float().div_(count), ring_bytes(sent.nbytes, count)


def _average_quantized(
    values: torch.Tensor, count: int, group: dist.ProcessGroup
) -> tuple[torch.Tensor, int]:
    """Average int8 values, each rank an equal part: in an all-reduce, their sums would overflow."""
    parts = functional.pad(values, (0, -len(values) % (count * BLOCK))).view(count, -1)
    sent = quantized(parts)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    mean = quantized(restored(received).mean(dim=0, keepdim=True))
    means = sent.new_empty(sent.shape)
    dist.all_gather_into_tensor(means, mean, group=group)
    return restored(means).view(-1)[: len(values)], ring_bytes(sent.nbytes, count)


def quantized(rows: torch.Tensor) -> torch.Tensor:
    """Quantize each row to bytes: an int8 per value, then a float32 scale per :data:`BLOCK` values.

    Args:
        rows: float32, of whole blocks.
    """
    blocks = rows.view(len(rows), -1, BLOCK)
    scales = blocks.abs().amax(dim=-1, keepdim=True) / MOST
    whole = (blocks / scales.where(scales != 0, 1.0)).round_().nan_to_num_().to(torch.int8)
    parts = (whole.view(len(rows), -1), scales.view(len(rows), -1).view(torch.int8))
    return torch.cat(parts, dim=1)


def restored(rows: torch.Tensor) -> torch.Tensor:
    """Restore float32 values from :func:`quantized`; blocks with a non-finite value become NaN."""
    blocks = rows.shape[1] // (BLOCK + SCALE_BYTES)
    whole, scales = torch.split(rows, [blocks * BLOCK, blocks * SCALE_BYTES], dim=1)
    scales = scales.contiguous().view(torch.float32).unsqueeze(-1)
    values: torch.Tensor = whole.reshape(len(rows), blocks, BLOCK) * scales
    return values.view(len(rows), -1)


# Under way: an average over replicas that is made behind computing, by a thread of its own.


class Averages(NamedTuple):
    """The averages received, flat, float32 and in host memory, and the bytes sent for them."""

    means: Sequence[torch.Tensor]
    sent_bytes: int = 0


@dataclass
class UnderWay:
    """The average of a fragment, which may still be in transit.

    Args:
        fragment: its number.
        step: after which replicas took their differences.
        size_bytes: of the differences.
    """

    fragment: int
    step: int
    size_bytes: int = 0
    averages: Future[Averages] = field(default_factory=Future)
    _done_bytes: int = 0

    def wait(self, what: str, progress: ProgressWriter) -> Averages:
        """Wait for the average and return it.

        Args:
            what: is said to be done while this waits.

        Raises:
            RuntimeError: the network failed.
        """
        if self.averages.done():
            return self.averages.result()
        tally, told = Tally(progress, what, self.size_bytes, "B"), 0
        while True:
            try:
                found = self.averages.result(timeout=EVERY_S)
            except TimeoutError:
                tally.add(self._done_bytes - told)
                told = self._done_bytes
            else:
                tally.end()
                return found

    def begin(self, learned: Sequence[torch.Tensor], dtype: str, group: dist.ProcessGroup) -> None:
        """Start to average these differences, which are overwritten, in a thread.

        The group is used for nothing else meanwhile. Gloo does it, in host memory: two NCCL
        communicators that are busy at once on a GPU may wait for each other forever. The thread is
        a daemon, as a rank that fails elsewhere must end.
        """
        self.size_bytes = sum(one.nbytes for one in learned)
        Thread(target=self._run, args=(learned, dtype, group), name="average", daemon=True).start()

    @torch.no_grad()
    def _run(self, learned: Sequence[torch.Tensor], dtype: str, group: dist.ProcessGroup) -> None:
        means, total = [], 0
        try:
            for one in learned:
                mean, sent = average(one, dtype, group)
                means.append(mean)
                total += sent
                self._done_bytes += one.nbytes
        except Exception as error:  # noqa: BLE001 - raised where the average is needed
            self.averages.set_exception(error)
        else:
            self.averages.set_result(Averages(means, total))


# Outer optimizer: what replicas that sync rarely have in common, updated at each sync.
#
# DiLoCo (arXiv 2311.08105): the difference between the weights of the last sync and those that a
# replica has now is its gradient, and SGD with Nesterov momentum takes the mean of all replicas'.


_LAYER = re.compile(r"\.(\d+)\.")
"""The number of a layer, in the name of a parameter."""

_FLOAT32 = torch.float32.itemsize


class OuterBucket:
    """A bucket of parameters that replicas send together.

    They are in float32, whatever the model's dtype, and in host memory: between two syncs a GPU
    has no use for them.

    Args:
        weights: of the last sync, by name; updated in place.
    """

    def __init__(self, section: DataParallelSection, weights: Mapping[str, nn.Parameter]) -> None:
        self.weights = weights
        self._sgd = torch.optim.SGD(
            list(weights.values()),
            lr=section.outer_learning_rate,
            momentum=section.outer_momentum,
            nesterov=section.outer_momentum > 0,
        )
        if section.outer_momentum:
            # SGD makes it in the first step, which is too late for a run that resumes.
            for one in weights.values():
                self._sgd.state[one]["momentum_buffer"] = torch.zeros_like(one)

    def momentum(self) -> dict[str, torch.Tensor]:
        """The outer momentum by parameter; empty if there is none."""
        state = self._sgd.state
        return {
            name: state[one]["momentum_buffer"]
            for name, one in self.weights.items()
            if "momentum_buffer" in state[one]
        }

    def learned(self, kept: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last sync's weights minus a replica's: flat, float32, on its device.

        Args:
            kept: the replica's, by name, in the dtype in which it keeps them: what it began with is
                rounded to that.
        """
        sizes = [one.numel() for one in self.weights.values()]
        flat = torch.empty(sum(sizes), device=next(iter(kept.values())).device)
        for name, part in self.parts(flat).items():
            own = kept[name].detach()
            # In place: of an embedding there would be several gigabytes otherwise.
            part.copy_(self.weights[name].detach().to(own.dtype)).sub_(own)
        return flat

    def parts(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        """Split a flat tensor into views with the names and shapes of the weights."""
        held = self.weights
        parts = torch.split(flat, [one.numel() for one in held.values()])
        return {name: part.view_as(held[name]) for name, part in zip(held, parts, strict=True)}

    def joined(self, parts: Mapping[str, torch.Tensor], before: str) -> torch.Tensor:
        """Flatten tensors that are shaped like the weights.

        Args:
            parts: by a weight's name with ``before`` in front.
        """
        return torch.cat([parts[f"{before}{name}"].reshape(-1) for name in self.weights])

    def step(self, mean: torch.Tensor) -> None:
        """Apply the outer optimizer to the mean of all replicas' differences."""
        for name, part in self.parts(mean.to("cpu")).items():
            self.weights[name].grad = part
        self._sgd.step()
        for one in self.weights.values():
            one.grad = None


def outer_fragments(
    section: DataParallelSection,
    kept: Mapping[str, torch.Tensor],
    counted_once: Container[str],
) -> Sequence[Sequence[OuterBucket]]:
    """Make the buckets of a replica's parameters by fragment, with their current weights.

    Layers are dealt to fragments in turn, as in the paper of streaming DiLoCo, so that it depends
    on no split. Both copies of a tied embedding are in the first one.

    Args:
        counted_once: names of the parameters except for a tied copy.
    """
    dealt: list[dict[str, torch.Tensor]] = [{} for _ in range(section.sync_fragments)]
    for name, one in kept.items():
        layer = _LAYER.search(name)
        if layer is not None:
            dealt[int(layer.group(1)) % len(dealt)][name] = one
        else:
            is_last = name == HEAD and name in counted_once
            dealt[-1 if is_last else 0][name] = one
    return [
        [
            OuterBucket(section, {name: _copied(some[name]) for name in names})
            for names in by_size(some, lambda name: _FLOAT32 * kept[name].numel(), BUCKET_BYTES)
        ]
        for some in dealt
    ]


def _copied(weight: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().to("cpu", torch.float32, copy=True))


# Syncs: replicas that train apart average what they have learned, every so many steps.
#
# All weights at once, or one fragment after another; at once, or behind computing (streaming
# DiLoCo, arXiv 2501.18512).


SYNC = "averaging the replicas"

MOMENTUM = "outer/momentum/"
"""Prefix of a parameter's name in a checkpoint."""

MEAN = "outer/mean/"
"""The same, for the average of what replicas have learned that is not applied yet."""

KEPT = 0.5
"""Of a replica's own weights where an average comes late, as in the paper: what it has learned
meanwhile is not thrown away."""


class OuterSyncs:
    """The syncs of one rank with the ranks of other replicas that hold the same weights.

    Without ``data_parallel.sync_every`` there are none, and nothing is held.

    Args:
        optimizer: holds what a replica has learned.
        meter: counts the bytes.
        progress: receives the progress of each sync: over a slow network it takes minutes.
    """

    def __init__(
        self,
        recipe: Recipe,
        groups: Groups,
        pipeline: Pipeline,
        optimizer: Optimizer,
        meter: StageMeter,
        progress: ProgressWriter,
    ) -> None:
        self.recipe = recipe
        self._section = recipe.data_parallel
        self._groups = groups
        self._pipeline = pipeline
        self._optimizer = optimizer
        self._meter = meter
        self._progress = progress
        self._fragments: Sequence[Sequence[OuterBucket]] = ()
        self._under_way: UnderWay | None = None
        self._met: dict[int, int] = {}
        """Steps at the last sync of each fragment, by its number, as far as this process knows;
        an average under way does not count."""
        self._last = torch.zeros((), dtype=torch.int64)
        """Steps at which all weights were equal; a tensor, as a checkpoint has it."""
        self.are_held = True
        """If not, each replica trains alone to the end, as in a smoke step."""
        if self.are_rare:
            self._begin_with_own()

    @property
    def are_rare(self) -> bool:
        """Whether replicas train independently between syncs."""
        return self._section.syncs_rarely and self._groups.replicas is not None

    def is_over(self, step: int) -> bool:
        """Whether all replicas have the same weights after ``step`` steps."""
        return not self.are_rare or int(self._last) == step

    def after(self, step: int) -> None:
        """Sync if it is due after ``step`` finished steps. Collective.

        That is after the last step, too: what is written then holds what all have learned.
        """
        if step == self.recipe.steps:
            self.conclude(step)
        elif self.are_held and self.are_rare:
            section, under_way = self._section, self._under_way
            if under_way is not None and step >= under_way.step + section.sync_delay:
                self._take()
            fragment = section.fragment_due(step)
            if fragment is not None and section.sync_delay:
                self._send(fragment, step)
            elif fragment is not None:
                self._meet(fragment, step)

    def conclude(self, step: int) -> None:
        """Sync all weights that have not been synced after this step. Collective."""
        if self.are_held and not self.is_over(step):
            self._take()
            for fragment in range(self._section.sync_fragments):
                if self._met.get(fragment) != step:
                    self._meet(fragment, step)

    def end(self, step: int, *, is_written: bool) -> None:
        """Sync a last time if the model is written, to include what all learned. Collective.

        Otherwise only wait for the average in transit, whose group is about to be closed.
        """
        if is_written:
            self.conclude(step)
        elif self._under_way is not None:
            self._under_way.wait(SYNC, self._progress)

    def begin_at(self, step: int) -> None:
        """Use the weights that all replicas have after ``step`` steps as those of a sync."""
        if self.are_rare:
            self._begin_with_own()
            self._last.fill_(step)

    @contextmanager
    def common(self, step: int) -> Iterator[None]:
        """Replace a replica's weights by those of the last syncs, to evaluate them."""
        if self.is_over(step):
            yield
            return
        kept = self._optimizer.kept()
        # A GPU may have no room for both.
        own = {name: one.detach().to("cpu", copy=True) for name, one in kept.items()}
        self._put(self._weights())
        try:
            yield
        finally:
            self._put(own)

    def state(self) -> dict[str, torch.Tensor]:
        """Return what all replicas share, by its names in a checkpoint.

        ``model/NAME`` is in the model's dtype; if that is less than float32, the exact values are
        there, too. These are views unless rounded.

        Waits for an average that is under way.
        """
        weights = self._weights()
        dtype = DTYPES[self.recipe.dtype]
        found = {f"model/{name}": one.to(dtype) for name, one in weights.items()}
        if dtype != torch.float32:
            found |= {f"outer/weights/{name}": one for name, one in weights.items()}
        for bucket in self._buckets():
            found |= {f"{MOMENTUM}{name}": one for name, one in bucket.momentum().items()}
        found |= self._means()
        return found | {"outer/step": self._last}

    def expected_means(self) -> dict[str, torch.Tensor]:
        """Return names and shapes of an average in transit that :meth:`state` may have.

        They are for :meth:`go_on`.
        """
        if not self._section.sync_delay:
            return {}
        shapes = {name: one.shape for name, one in self._weights().items()}
        return {f"{MEAN}{name}": torch.zeros(()).expand(one) for name, one in shapes.items()}

    def go_on(self, step: int, means: Mapping[str, torch.Tensor]) -> None:
        """Continue from a checkpoint once the tensors of :meth:`state` are restored.

        Args:
            step: of the checkpoint.
            means: those of :meth:`expected_means` that it has. If fragments have been other ones,
                they are left out: what they hold is sent again at the next sync.
        """
        if not self.are_rare:
            return
        section = self._section
        since = step % section.fragment_steps
        fragment = section.fragment_due(step - since)
        if fragment is None or since > section.sync_delay:
            return
        if not section.sync_delay:
            self._met[fragment] = step
            return
        buckets = self._fragments[fragment]
        names = {f"{MEAN}{name}" for bucket in buckets for name in bucket.weights}
        if names and names == means.keys():
            self._under_way = UnderWay(fragment, step - since)
            arrived = [bucket.joined(means, MEAN) for bucket in buckets]
            self._under_way.averages.set_result(Averages(arrived))

    def __str__(self) -> str:
        """Describe the syncs for the log; empty if there are none."""
        if not self.are_rare:
            return ""
        section = self._section
        values = sum(one.numel() for one in self._weights().values())
        size = shown_bytes(round(values * section.sent_bytes))
        parts, delay = section.sync_fragments, section.sync_delay
        how = f", in {parts} fragments" if parts > 1 else ""
        how += f", taken {delay} step{'s' * (delay > 1)} later" if delay else ""
        return (
            f"; replicas sync every {section.sync_every} steps: {size} per rank in "
            f"{section.sync_dtype}{how}; outer learning rate {section.outer_learning_rate:g}, "
            f"momentum {section.outer_momentum:g}"
        )

    def _begin_with_own(self) -> None:
        counted = self._pipeline.counted_once()
        self._fragments = outer_fragments(self._section, self._optimizer.kept(), counted)
        self._under_way = None

    def _buckets(self) -> Iterator[OuterBucket]:
        for fragment in self._fragments:
            yield from fragment

    def _weights(self) -> dict[str, torch.Tensor]:
        """Return the weights of the last syncs."""
        return _weights_of(self._buckets())

    def _means(self) -> dict[str, torch.Tensor]:
        """Return the average in transit, by its names in a checkpoint."""
        if self._under_way is None:
            return {}
        arrived = self._under_way.wait(SYNC, self._progress).means
        buckets = self._fragments[self._under_way.fragment]
        return {
            f"{MEAN}{name}": part
            for bucket, mean in zip(buckets, arrived, strict=True)
            for name, part in bucket.parts(mean).items()
        }

    def _meet(self, fragment: int, step: int) -> None:
        """Average a fragment now; afterwards, all replicas have its weights."""
        self._average(fragment)
        self._met[fragment] = step
        if all(self._met.get(one) == step for one in range(self._section.sync_fragments)):
            self._last.fill_(step)

    @torch.no_grad()
    def _average(self, fragment: int) -> None:
        group, kept = self._groups.replicas, self._optimizer.kept()
        assert group is not None  # noqa: S101
        buckets, each = self._fragments[fragment], self._section.sent_bytes
        values = sum(one.numel() for bucket in buckets for one in bucket.weights.values())
        tally, total = Tally(self._progress, SYNC, round(values * each), "B"), 0
        for bucket in buckets:
            learned = bucket.learned(kept)
            mean, sent = average(learned, self._section.sync_dtype, group)
            bucket.step(mean)
            total += sent
            tally.add(round(learned.numel() * each))
        tally.end()
        self._count(total)
        self._put(self._evened(fragment))

    @torch.no_grad()
    def _send(self, fragment: int, step: int) -> None:
        """Start to average a fragment."""
        group, kept = self._groups.replicas, self._optimizer.kept()
        assert group is not None  # noqa: S101
        learned = [bucket.learned(kept).cpu() for bucket in self._fragments[fragment]]
        self._under_way = UnderWay(fragment, step)
        self._under_way.begin(learned, self._section.sync_dtype, group)

    @torch.no_grad()
    def _take(self) -> None:
        """Apply the average in transit, if there is one, and wait for it if necessary."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return
        arrived = under_way.wait(SYNC, self._progress)
        for bucket, mean in zip(self._fragments[under_way.fragment], arrived.means, strict=True):
            bucket.step(mean)
        self._count(arrived.sent_bytes)
        kept, met = self._optimizer.kept(), self._evened(under_way.fragment)
        for name, one in met.items():
            own = kept[name].float()
            met[name] = torch.lerp(one.to(own.device), own, KEPT)
        self._put(met)

    def _evened(self, fragment: int) -> dict[str, torch.Tensor]:
        """Return a fragment's weights after its sync; collective if it has a tied embedding."""
        weights = _weights_of(self._fragments[fragment])
        if fragment == 0:  # which has both copies
            self._pipeline.even_out_tied(weights)
        return weights

    @torch.no_grad()
    def _put(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Replace a replica's own weights by these."""
        kept = self._optimizer.kept()
        for name, one in weights.items():
            kept[name].copy_(one)
        self._optimizer.renew()

    def _count(self, sent_bytes: int) -> None:
        before, after = self._groups.grid.ring_of(self._groups.rank)
        self._meter.passed_on(sent_bytes, sent_to=after, received_from=before)


def _weights_of(buckets: Iterable[OuterBucket]) -> dict[str, torch.Tensor]:
    return {name: one.detach() for bucket in buckets for name, one in bucket.weights.items()}
