"""Transfers in fewer bits: the codec, and pipelines that send by it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from jupyter_mntrain.recipe.transfers import Format, wire_bytes
from jupyter_mntrain.train.pipeline.transfers import (
    CHECKED_EVERY,
    Numbering,
    _pack,
    _unpacked,
    decode,
    dither_of,
    encode,
    ends_of,
    signal_and_noise,
)
from tests.train.pipeline.transfer_cases import CASES, ORDERED, Outcome, Resumed
from tests.train.ranks import run_ranks

CPU = torch.device("cpu")
PACKED: tuple[Format, ...] = ("bfloat16", "int8", "int4")


def seen(values: torch.Tensor, form: Format, *key: int) -> torch.Tensor:
    """What arrives: dithered, if there is a key."""
    dither = dither_of(values.shape, form, key, CPU) if key else None
    into = torch.empty_like(values)
    decode(encode(values, form, dither), form, into, dither)
    return into


def some(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("hidden", [8, 64, 72, 768])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_message_has_the_size_that_is_told(form: Format, hidden: int, dtype: torch.dtype) -> None:
    values = some(3, 5, hidden).to(dtype)
    message = encode(values, form)
    assert message.dtype == torch.uint8
    assert message.shape == (wire_bytes(form, 15, hidden, dtype.itemsize),)
    assert seen(values, form).dtype == dtype


@pytest.mark.parametrize(("form", "most_db"), [("bfloat16", 50.0), ("int8", 38.0), ("int4", 16.5)])
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6, 1e30])
def test_what_is_lost_is_small(form: Format, most_db: float, scale: float) -> None:
    values = some(64, 256).double().mul(scale).float()
    for key in ((), (1, 2)):
        signal, noise = signal_and_noise(values / scale, seen(values, form, *key) / scale)
        assert 10 * math.log10(signal / noise) > most_db


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_no_value_is_off_by_more_than_a_step_of_its_scale(form: Format) -> None:
    values = some(32, 100) * torch.logspace(-3, 3, 32).unsqueeze(1)
    values[:, 7] *= 100.0  # a channel that is much larger than the others
    apart = (seen(values, form) - values).abs().amax(-1)
    # What is left beside a message's directions is at most the norm of the token.
    most = values.abs().amax(-1) / 127 if form == "int8" else values.norm(dim=-1) / 7
    assert bool((apart <= most).all())


@pytest.mark.parametrize("form", PACKED)
def test_zeros_stay_zeros(form: Format) -> None:
    for key in ((), (1,)):
        assert not seen(torch.zeros(4, 72), form, *key).any()


def test_compiled_it_writes_the_same_messages() -> None:
    encoding, decoding = (
        torch.compile(one, backend="aot_eager", fullgraph=True, dynamic=False)
        for one in (encode, decode)
    )
    values, into = some(2, 9, 136), torch.empty(2, 9, 136)
    dither = dither_of(values.shape, "int4", (1, 2), CPU)
    with torch.no_grad():
        message = encoding(values, "int4", dither)
        decoding(message, "int4", into, dither)
    assert torch.equal(message, encode(values, "int4", dither))
    assert torch.equal(into, seen(values, "int4", 1, 2))


@pytest.mark.parametrize("form", PACKED)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_does_not_become_a_number(form: Format, wrong: float) -> None:
    values = some(4, 128)
    values[1, 3] = wrong
    found = seen(values, form)
    assert not found[1, :64].isfinite().all()
    if form == "int4":  # whose directions are those of all tokens
        assert not found.isfinite().any()
    else:
        assert found[[0, 2, 3]].isfinite().all()


@pytest.mark.parametrize("tokens", [1, 3, 8, 200])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_4_bits_lose_little_of_values_in_few_directions(tokens: int, scale: float) -> None:
    """As the residual streams of decoders are: fewer bits are spent on the rest."""
    values = some(tokens, 4) @ some(4, 256, seed=1) + 0.01 * some(tokens, 256, seed=2)
    signal, noise = signal_and_noise(values, seen(values.mul(scale), "int4", 1) / scale)
    assert 10 * math.log10(signal / noise) > 36.0


@pytest.mark.parametrize("kind", ["channel", "token"])
def test_outliers_do_not_cost_the_other_values(kind: str) -> None:
    """Channels and tokens whose values are a hundred times as large as the others."""
    values = some(256, 256)
    others = torch.ones_like(values, dtype=torch.bool)
    if kind == "channel":
        values[:, 5] = 100.0 * some(256, seed=1)
        others[:, 5] = False
    else:
        values[7, 5] = 1000.0
        others[7, 5] = False
    found = seen(values, "int4", 1)
    signal, noise = signal_and_noise(values[others], found[others])
    assert 10 * math.log10(signal / noise) > 16.5


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_gradients_are_right_on_average(form: Format) -> None:
    """Many roundings: the error of their mean falls by the root of their number, as noise does."""
    values, times = some(4, 72), 200
    total = torch.zeros_like(values)
    for number in range(times):
        total += seen(values, form, 7, number)
    once = seen(values, form, 7, 0) - values
    mean = total / times - values
    assert mean.square().mean().sqrt() < 2 * once.square().mean().sqrt() / math.sqrt(times)


def test_random_numbers_follow_from_their_key_alone() -> None:
    shape = (2, 3, 72)
    first = dither_of(shape, "int4", (1, 2, 3, 4), CPU)
    assert first is not None
    torch.manual_seed(0)
    assert torch.equal(first, dither_of(shape, "int4", (1, 2, 3, 4), CPU))
    others = [(0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0), (2**62, 2, 3, 4)]
    for key in others:
        other = dither_of(shape, "int4", key, CPU)
        assert other is not None
        assert not (first == other).float().mean() > 0.01
    assert dither_of(shape, "bfloat16", (1,), CPU) is None


def test_random_numbers_are_uniform_and_of_no_order() -> None:
    """Means of 16 parts of their range, and of products of neighbors, a tile and a row apart."""
    many = dither_of((64, 1024), "int8", (3, 1), CPU)
    assert many is not None
    parts = torch.bincount((many.int() + 2**15) >> 12, minlength=16) / len(many)
    assert (parts - 1 / 16).abs().max() < 6 * math.sqrt(15) / 16 / math.sqrt(len(many))
    one = many.double() / 2**15 * math.sqrt(3)
    for apart in (1, 2, 64, 1024):
        assert abs((one[apart:] * one[:-apart]).mean()) < 6 / math.sqrt(len(one))
    for key in ((3, 2), (4, 1), (3, 1, 1)):
        other = dither_of((64, 1024), "int8", key, CPU)
        assert other is not None
        assert abs((one * other.double() / 2**15 * math.sqrt(3)).mean()) < 6 / math.sqrt(len(one))


@pytest.mark.parametrize("bits", [4, 5, 6, 7])
def test_numbers_of_any_bits_are_packed(bits: int) -> None:
    numbers = torch.randint(2**bits, (5, 64), dtype=torch.uint8)
    packed = torch.full((5 * 64 * bits // 8,), 255, dtype=torch.uint8)
    _pack(numbers, bits, packed)
    assert torch.equal(_unpacked(packed, bits, 5, 64), numbers)


def test_a_stage_has_the_ends_of_its_boundaries() -> None:
    numbering = Numbering(0)
    of = [ends_of(one, ("int8-int4", "none"), numbering, compiles=False) for one in range(3)]
    forms = [[end and (end.boundary, end.form) for end in ends] for ends in of]
    assert forms == [
        [None, (0, "int8"), (0, "int4"), None],
        [(0, "int8"), None, None, (0, "int4")],
        [None, None, None, None],
    ]


def test_one_microbatch_of_some_steps_is_compared() -> None:
    number = Numbering(0)
    found = []
    for step in range(2 * CHECKED_EVERY):
        number.step = step
        found += [(step, one) for one in range(3) if number.is_checked(one)]
    assert found == [(0, 0), (CHECKED_EVERY, 0)]


# Worlds of ranks.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What came out in a world of two or four ranks, on two nodes: a folder with it."""

    @cache
    def run(size: int) -> Path:
        folder = tmp_path_factory.mktemp(f"world-{size}")
        nodes = ["a"] * (size // 2) + ["b"] * (size // 2)
        ended = run_ranks(folder / "recipe.toml", nodes, program=_compare)
        assert [one.exit_code for one in ended] == [0] * size, ended[0].err[-4000:]
        return folder

    return run


def _compare(words: list[str]) -> None:
    from tests.train.pipeline.transferred import run_all

    run_all(words)


def outcome(folder: Path, name: str) -> Outcome:
    found = msgspec.json.decode((folder / "outcomes.json").read_bytes(), type=dict[str, Outcome])
    return found[name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "name"), [(size, name) for size, cases in CASES.items() for name in cases]
)
def test_pipelines_have_the_gradients_of_one_microbatch_after_the_other(
    world: Any, size: int, name: str
) -> None:
    found = outcome(world(size), name)
    assert found.gradient_error <= (0.0 if name in ORDERED else 1e-5)
    assert found.loss_error <= 1e-6
    assert found.evaluation_error <= 1e-6
    if size == 2:  # else gradients are summed over ranks, too
        own = {rank: {} for rank in found.sent_bytes} | found.sent_bytes
        assert name == "8 bits, tied" or own == found.expected_bytes
    assert bool(sum(found.coded.values())) == (name != "off")


@pytest.mark.slow
def test_every_end_of_a_boundary_is_counted_and_compared(world: Any) -> None:
    found = outcome(world(2), "gpipe")
    # Of each of four microbatches a rank encodes one message, and decodes one.
    assert found.coded == {0: 8, 1: 8}
    assert [one[:2] for one in found.compared[0]] == [(0, False)]
    assert [one[:2] for one in found.compared[1]] == [(0, True)]
    assert all(10.0 < db < 50.0 for one in found.compared.values() for *_, db in one)


@pytest.mark.slow
def test_a_resumed_run_rounds_as_the_unbroken_one(world: Any) -> None:
    folder = world(2)
    found = msgspec.json.decode((folder / "resumed.json").read_bytes(), type=Resumed)
    assert found.resumed == found.unbroken[2:], "on another schedule"
    assert found.uncompressed != found.unbroken
    assert found.uncompressed == pytest.approx(found.unbroken, rel=0.05)


@pytest.mark.slow
def test_the_journal_tells_coding_and_what_is_lost(world: Any) -> None:
    journal = world(2) / "journal"
    lines = [line for path in journal.glob("*.ndjson") for line in path.read_bytes().splitlines()]
    steps = [one for one in map(msgspec.json.decode, lines) if one["kind"] == "step"]
    assert {one["rank"] for one in steps} == {0, 1}
    for one in steps:
        assert 0.0 < one["coding_s"] < one["step_s"]
        parts = one["compute_s"] + one["coding_s"] + one["wait_s"] + one["optimizer_s"]
        assert parts <= one["step_s"] * 1.001
        ratios = one.get("compared_transfers", [])
        assert len(ratios) == (one["step"] == 1)
        assert all(one["ratio_db"] > 10.0 for one in ratios)
