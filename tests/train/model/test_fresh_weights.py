"""Weights drawn from a seed: the values do not depend on threads or pieces."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from jupyter_mntrain.telemetry.progress import Tally
from jupyter_mntrain.train.model import weights
from jupyter_mntrain.train.model.decoder import EMBEDDING
from jupyter_mntrain.train.model.weights import DRAWN_VALUES, seeded_weights

CPU = torch.device("cpu")
SEED, DEVIATION = 7, 0.02
SHAPES: dict[str, tuple[int, ...]] = {
    # Less than a group of what torch draws at once, a group, and a bit more than one.
    **{f"{size}.weight": (1, size) for size in (1, 15, 16, 17, 33)},
    # Around a piece, and several.
    **{f"{more}.weight": (1, DRAWN_VALUES + more) for more in (-1, 0, 5, 16, 35)},
    "lm_head.weight": (1031, 509),
    "model.embed_tokens.weight": (1031, 509),
    "norm.weight": (9,),
    "q.bias": (9,),
}


def empty(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: torch.empty(shape, dtype=dtype, device="meta") for name, shape in SHAPES.items()}


def drawn(dtype: torch.dtype, **arguments: Any) -> dict[str, torch.Tensor]:
    given: dict[str, Any] = {"tied_to": None, "seed": SEED, "deviation": DEVIATION, "device": CPU}
    return seeded_weights(empty(dtype), **given | arguments)


def whole(name: str, dtype: torch.dtype) -> torch.Tensor:
    """What a checkpoint of an earlier version began with: one draw per tensor."""
    if name.endswith(".bias"):
        return torch.zeros(SHAPES[name], dtype=dtype)
    if len(SHAPES[name]) == 1:
        return torch.ones(SHAPES[name], dtype=dtype)
    digest = hashlib.sha256(f"{SEED}\0{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return (torch.randn(SHAPES[name], generator=generator) * DEVIATION).to(dtype)


@pytest.mark.parametrize("threads", [1, 3, 16, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_and_pieces_leave_the_values_as_one_draw_makes_them(
    dtype: torch.dtype, threads: int | None
) -> None:
    made = drawn(dtype, threads=threads)
    assert [*made] == [*SHAPES]
    for name, tensor in made.items():
        assert torch.equal(tensor, whole(name, dtype)), name


def test_a_tied_head_is_drawn_as_the_embedding() -> None:
    made = drawn(torch.float32, tied_to=EMBEDDING)
    assert torch.equal(made["lm_head.weight"], made["model.embed_tokens.weight"])
    apart = drawn(torch.float32)
    assert not torch.equal(apart["lm_head.weight"], made["lm_head.weight"])


def test_progress_counts_every_byte_and_is_reported_by_one_thread_at_a_time() -> None:
    at_once, most, sums = [0], [0], list[float]()

    def told(what: str, done: float, total: float | None = None, unit: str = "") -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        threading.Event().wait(0.001)  # lets the other threads in, if nothing holds them
        sums.append(done)
        at_once[0] -= 1

    size = sum(one.nbytes for one in empty(torch.bfloat16).values())
    drawn(torch.bfloat16, threads=4, tally=Tally(told, "making the weights", size, "B"))
    assert sums == sorted(sums)
    assert sums[-1] == size
    assert most == [1]


def test_a_threads_memory_does_not_grow_with_the_tensor() -> None:
    class Made(TorchDispatchMode):
        values = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.randn.generator:
                self.values = max(self.values, out.numel())
            return out

    rows = torch.empty(3 * DRAWN_VALUES, 1, device="meta")
    # Modes are per thread: this is the work of one.
    with Made() as made:
        weights._fresh(rows, "a.weight", SEED, DEVIATION, CPU, lambda _: None)
    assert made.values == DRAWN_VALUES


def test_ranks_of_a_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {*range(12)})
    shares = {"1": 12, "4": 3, "5": 2, "64": 1}
    for ranks, share in shares.items():
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert weights._cores() == share
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert weights._cores() == 12
