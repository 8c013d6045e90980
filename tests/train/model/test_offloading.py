"""Offloading: gradients are the same, and copies come back before they are needed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.train.model import activations
from jupyter_mntrain.train.model.activations import CudaCopies, Offload
from tests.recipe.test_memory import built
from tests.wording import says

WIDTH, LAYERS, ROWS = 16, 5, 4
DEVICE = torch.device("cpu")


class Recorded:
    """Copies that are made at once, and told in a log; counts bytes on "the device"."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.sizes: list[int] = []
        self.here = self.most_here = 0

    def out(self, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        number = len(self.sizes)
        self.sizes.append(tensor.nbytes)
        self.log.append(("out", number))
        return tensor.clone(), number

    def back(self, host: torch.Tensor, sent: int) -> tuple[torch.Tensor, int]:
        self.log.append(("back", sent))
        tensor, size = host.clone(), host.nbytes
        self.here += size
        self.most_here = max(self.most_here, self.here)
        weakref.finalize(tensor, self._gone, size)
        return tensor, sent

    def _gone(self, size: int) -> None:
        self.here -= size

    def await_back(self, tensor: torch.Tensor, ready: int) -> None:
        self.log.append(("use", ready))


class Layer(nn.Module):
    """Saves its input for two projections, their results, and what comes of these."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))


def stack() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(LAYERS)))


def offload_of(model: nn.Module, copies: Any, smallest_bytes: int = 0) -> Offload:
    return Offload(model.parameters(), copies, layers=LAYERS, smallest_bytes=smallest_bytes)


def rows(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, WIDTH, generator=generator).requires_grad_()


def gradients(model: nn.Module, *inputs: torch.Tensor) -> list[torch.Tensor | None]:
    found = [one.grad for one in (*inputs, *model.parameters())]
    model.zero_grad()
    return found


def test_gradients_are_the_same_to_the_last_bit_with_several_microbatches_in_flight() -> None:
    model, copies = stack(), Recorded()
    plain = [rows(seed) for seed in range(3)]
    for one in plain:
        model(one).square().sum().backward()
    expected = gradients(model, *plain)

    again, offload = [rows(seed) for seed in range(3)], offload_of(model, copies)
    losses = []
    for one in again:
        with offload:
            losses.append(model(one).square().sum())
    for loss in losses:
        loss.backward()
    for found, wanted in zip(gradients(model, *again), expected, strict=True):
        assert found is not None
        assert wanted is not None
        assert torch.equal(found, wanted)
    assert copies.here == 0


def test_weights_and_small_tensors_stay() -> None:
    model, copies = stack(), Recorded()
    with offload_of(model, copies, smallest_bytes=ROWS * WIDTH * 4 + 1):
        model(rows()).sum().backward()
    assert copies.sizes == []
    with offload_of(model, copies):
        model(rows()).sum().backward()
    assert {*copies.sizes} == {ROWS * WIDTH * 4}  # that of a weight is four times that


def test_what_several_projections_save_is_copied_once() -> None:
    model, copies = stack(), Recorded()
    with offload_of(model, copies):
        loss = model(rows()).sum()
    # A layer saves: its input, the sigmoid, the other projection, and their product.
    assert len(copies.sizes) == 4 * LAYERS
    loss.backward()
    for kind in ("out", "back"):
        assert sorted(number for what, number in copies.log if what == kind) == [*range(4 * LAYERS)]
    assert [what for what, _ in copies.log].count("use") > 4 * LAYERS


def test_a_tensor_that_was_changed_is_another() -> None:
    copies, x = Recorded(), rows()
    weight = torch.ones(ROWS, WIDTH, requires_grad=True)
    buffer = x.detach().clone()
    with offload_of(nn.Module(), copies):
        first = (weight * buffer).sum()
        with torch.no_grad():
            buffer.add_(1)
        second = (weight * buffer).sum()
    (first + second).backward()
    torch.testing.assert_close(weight.grad, 2 * x.detach() + 1)


def test_memory_that_is_used_again_is_another_tensor() -> None:
    copies = Recorded()
    weight = torch.ones(ROWS, WIDTH, requires_grad=True)
    with offload_of(nn.Module(), copies):
        # Each is freed at once, and the next is likely to take its place.
        losses = [(weight * torch.full((ROWS, WIDTH), float(n))).sum() for n in range(20)]
    torch.stack(losses).sum().backward()
    torch.testing.assert_close(weight.grad, torch.full((ROWS, WIDTH), float(sum(range(20)))))


@contextmanager
def watched(model: nn.Sequential, log: list[tuple[str, int]]) -> Any:
    """Log the end of each layer's backward pass: its input has its gradient."""

    def watch(number: int) -> Callable[..., None]:
        def forward(_: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            inputs[0].register_hook(lambda _: log.append(("end", number)))

        return forward

    hooks = [one.register_forward_pre_hook(watch(number)) for number, one in enumerate(model)]
    yield
    for hook in hooks:
        hook.remove()


def test_the_copies_of_the_layer_before_begin_before_a_layers_backward_pass_ends() -> None:
    model, copies = stack(), Recorded()
    with watched(model, copies.log):
        with offload_of(model, copies):
            loss = model(rows()).sum()
        copies.log.clear()
        loss.backward()
    each = 4
    place = {entry: number for number, entry in reversed([*enumerate(copies.log)])}
    for layer in range(1, LAYERS):
        before = [place["back", number] for number in range(each * (layer - 1), each * layer)]
        assert max(before) < place["end", layer]
    # No more than the current layer and the one before are there, with a tensor in use.
    size = ROWS * WIDTH * 4
    assert copies.most_here <= (2 * each + 1) * size
    # Everything is fetched before it is used.
    assert all(place["back", number] < place["use", number] for number in range(each * LAYERS))


def test_a_backward_pass_in_two_parts_fetches_twice_and_holds_no_more() -> None:
    model, copies = stack(), Recorded()
    x = rows()
    model(x).sum().backward()
    expected = gradients(model, x)
    again = rows()
    with offload_of(model, copies):
        loss = model(again).sum()
    (of_input,) = torch.autograd.grad(loss, [again], retain_graph=True)
    of_weights = torch.autograd.grad(loss, [*model.parameters()])
    for found, wanted in zip((of_input, *of_weights), expected, strict=True):
        assert wanted is not None
        assert torch.equal(found, wanted)
    assert copies.most_here <= (2 * 4 + 1) * ROWS * WIDTH * 4
    assert [what for what, _ in copies.log].count("back") == 2 * 4 * LAYERS
    del loss
    gc.collect()
    assert copies.here == 0


@pytest.mark.parametrize(
    "more",
    [
        *((f"memory.checkpointing={one}",) for one in ("none", "full", "selective")),
        ("adapters.rank=4", "adapters.quantize_base=nf4"),
    ],
)
def test_a_decoder_has_the_same_gradients(more: tuple[str, ...]) -> None:
    recipe, _, module, _ = built("model.preset=llama-tiny", "memory.loss=plain", *more)
    ids = torch.arange(recipe.data.sequence_length).repeat(recipe.microbatch_size, 1)
    module(ids, ids).square().mean().backward()
    expected = gradients(module)
    copies = Recorded()
    layers = len(module.layers)
    module.keeping = Offload(module.weights().values(), copies, layers=layers, smallest_bytes=1024)
    module(ids, ids).square().mean().backward()
    assert copies.sizes
    trained = [one.requires_grad for one in module.parameters()]
    for is_trained, found, wanted in zip(trained, gradients(module), expected, strict=True):
        assert is_trained is (found is not None) is (wanted is not None)
        assert found is wanted is None or torch.equal(found, wanted)


@pytest.mark.slow  # compiles
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@torch._dynamo.config.patch(error_on_recompile=True)
def test_what_compiled_layers_save_is_offloaded() -> None:
    torch.compiler.reset()
    model, copies = stack(), Recorded()
    for layer in model:
        layer.forward = torch.compile(layer.forward)
    x, again = rows(), rows()
    model(x).sum().backward()
    expected = gradients(model, x)
    with offload_of(model, copies):
        loss = model(again).sum()
    assert len(copies.sizes) >= LAYERS
    loss.backward()
    for found, wanted in zip(gradients(model, again), expected, strict=True):
        assert found is not None
        assert wanted is not None
        assert torch.equal(found, wanted)


class Log:
    """Streams and events of a machine without CUDA: what is asked of them, in order."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.made = 0

    def stream(self, *_: Any) -> Any:
        log, name = self, f"stream {self.made}"
        self.made += 1

        class Stream:
            def wait_stream(self, other: Any) -> None:
                log.said.append((str(self), "waits for", str(other)))

            def wait_event(self, event: str) -> None:
                log.said.append((str(self), "waits for", event))

            def record_event(self) -> str:
                return f"event {len(log.said)} of {name}"

            def __str__(self) -> str:
                return name

        return Stream()


def test_copies_on_a_gpu_wait_for_what_they_copy_and_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    computing = log.stream()
    on: list[Any] = [computing]

    @contextmanager
    def within(stream: Any) -> Any:
        on.append(stream)
        yield
        on.pop()

    copy = torch.Tensor.copy_

    def copied(self: torch.Tensor, other: torch.Tensor, **how: Any) -> torch.Tensor:
        log.said.append((str(on[-1]), "copies", how))
        return copy(self, other)

    monkeypatch.setattr(torch.cuda, "Stream", log.stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: on[-1])
    monkeypatch.setattr(torch.cuda, "stream", within)
    monkeypatch.setattr(torch.Tensor, "copy_", copied)
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda _, stream: log.said.append(("kept for", str(stream)))
    )
    monkeypatch.setattr(activations, "_pinned", torch.empty_like)
    copies, tensor = CudaCopies(DEVICE), torch.arange(6.0).view(2, 3).t()
    host, sent = copies.out(tensor)
    outward = [
        ("stream 1", "waits for", "stream 0"),
        ("stream 1", "copies", {"non_blocking": True}),
        ("kept for", "stream 1"),
    ]
    assert log.said == outward
    log.said.clear()
    found, ready = copies.back(host, sent)
    copies.await_back(found, ready)
    assert log.said == [
        ("stream 2", "waits for", "event 3 of stream 1"),
        ("stream 2", "copies", {"non_blocking": True}),
        ("stream 0", "waits for", "event 2 of stream 2"),
        ("kept for", "stream 0"),
    ]
    assert torch.equal(found, tensor)
    assert found.stride() == tensor.stride()  # compiled code relies on it


def test_a_host_that_is_full_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be")

    monkeypatch.setattr(torch, "empty_like", full)
    with pytest.raises(RecipeError) as caught:
        activations._pinned(torch.zeros(250_000))
    cause = caught.value.cause
    assert says("there is no host memory for 1.0 MB more: CUDA error: out of memory", cause)
    assert "\n" not in cause
    assert says('memory.checkpointing = "full"', caught.value.fix)
