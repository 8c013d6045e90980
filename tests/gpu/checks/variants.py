"""Check 2: every optimizer and precision, and each way to save memory or time."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping

from tests.gpu.checks.same import compared
from tests.gpu.findings import Bench, Item, failed, judged, skipped
from tests.gpu.ranks import Answer, run_cases
from tests.gpu.settings import EXACT, REPEATABLE, WITHOUT_TF32, case

KINDS = ("adamw", "adafactor", "adamw-8bit", "adamw-4bit")
PRECISIONS = ("float32-master", "stochastic-rounding", "plain")
CLOSE = 3e-2
"""Of losses over a few steps, in bfloat16 or with a quantized optimizer, to those in float32."""
COMPILED = 1e-3
"""Of losses with other kernels than torch's own."""

NEEDS_CARD = "needs a GPU"
NEEDED = {"liger": "liger_kernel", "adamw-8bit": "torchao", "adamw-4bit": "torchao"}


def check_variants(bench: Bench) -> Iterator[Item]:
    yield from _memory_settings(bench)
    yield from _bit_equal(bench)
    yield from _optimizers(bench)


def _memory_settings(bench: Bench) -> Iterator[Item]:
    """Loss and kernels: losses as without them."""
    ways: dict[str, tuple[tuple[str, ...], float]] = {
        "chunked loss": (("memory.loss=chunked", "memory.chunk_tokens=50"), EXACT),
        "fused backward": (("memory.fused_backward=true",), EXACT),
    }
    on_cards: dict[str, tuple[tuple[str, ...], float]] = {
        "liger": (("memory.loss=liger",), COMPILED),
        "compiled layers": (("memory.compile=true",), COMPILED),
        "flex attention": (("model.attention=flex_attention",), COMPILED),
        "compiled, full recomputation": (
            ("memory.compile=true", "memory.checkpointing=full"),
            COMPILED,
        ),
    }
    for name, way in on_cards.items():
        if missing := _missing(bench, name):
            yield skipped(name, missing)
        else:
            ways[name] = way
    unclipped = "optimizer.clip_norm=0"
    cases = [case(bench, name, (unclipped, *changes)) for name, (changes, _) in ways.items()]
    cases.insert(0, case(bench, "plain", (unclipped,)))
    answers = run_cases(bench, cases, environment=WITHOUT_TF32, case_s=90)
    for name, (_, most) in ways.items():
        yield compared(name, answers[name], answers["plain"], most)


def _bit_equal(bench: Bench) -> Iterator[Item]:
    """Recomputation and offloading: the trained weights are the same to the last bit."""
    model: tuple[str, ...] = ()
    if bench.is_real:  # activations that are worth a copy to the host
        model = ("model.preset=llama-8m", "data.sequence_length=512", *REPEATABLE)
    ways = {
        "full recomputation": "memory.checkpointing=full",
        "selective recomputation": "memory.checkpointing=selective",
    }
    if bench.is_real:
        ways["offloaded activations"] = "memory.offload_activations=true"
    else:
        yield skipped("offloaded activations", NEEDS_CARD)
    both = [case(bench, name, model, watch="weights") for name in ("plain", "again")]
    cases = [case(bench, name, (*model, one), watch="weights") for name, one in ways.items()]
    answers = run_cases(bench, both + cases)
    plain, again = answers["plain"], answers["again"]
    if plain.error or again.error:
        yield failed("two plain runs", plain.error or again.error or "")
        return
    control = _different(again, plain)
    yield judged("two plain runs are bit-equal", control)
    for name in ways:
        answer = answers[name]
        if answer.error:
            yield failed(name, answer.error)
            continue
        problem = _different(answer, plain)
        if name == "offloaded activations":
            problem = problem or _no_less(answer, plain)
        yield judged(f"{name}, bit-equal", problem, **_peaks(bench, answer, plain))


def _different(answer: Answer, plain: Answer) -> str | None:
    for what in ("losses", "norms", "weights"):
        if answer.first[what] != plain.first[what]:
            return f"other {what}: {answer.first[what]} instead of {plain.first[what]}"[:300]
    return None


def _no_less(answer: Answer, plain: Answer) -> str | None:
    own, other = answer.first["peak_bytes"], plain.first["peak_bytes"]
    return None if own < other else f"its peak is {own:,} bytes, without it {other:,}"


def _peaks(bench: Bench, answer: Answer, plain: Answer) -> Mapping[str, float]:
    if not bench.is_real:
        return {}
    own, other = answer.first["peak_bytes"], plain.first["peak_bytes"]
    return {"peak_MB": own / 1e6, "plain_peak_MB": other / 1e6}


def _optimizers(bench: Bench) -> Iterator[Item]:
    """Every optimizer and precision: losses close to those of the same in float32."""
    pairs = [(kind, precision) for kind in KINDS for precision in PRECISIONS]
    wanted = []
    for kind, precision in pairs:
        if missing := _missing(bench, kind):
            yield skipped(f"{kind}, {precision}", missing)
        else:
            wanted.append((kind, precision))
    cases = [case(bench, kind, _kind(kind)) for kind in KINDS[:2]]
    for kind, precision in wanted:
        changes = ("model.dtype=bfloat16", f"optimizer.precision={precision}")
        cases.append(case(bench, f"{kind}, {precision}", (*_kind(kind), *changes)))
    # torchao compiles its step for each shape.
    answers = run_cases(bench, cases, case_s=120)
    for kind, precision in wanted:
        reference = answers["adafactor" if kind == "adafactor" else "adamw"]
        name = f"{kind}, {precision}"
        yield compared(name, answers[name], reference, CLOSE)


def _kind(kind: str) -> tuple[str, ...]:
    """A rate at which a few steps change the loss by more than :data:`CLOSE`."""
    rate = 0.1 if kind == "adafactor" else 1e-3
    return (f"optimizer.kind={kind}", f"optimizer.learning_rate={rate}")


def _missing(bench: Bench, name: str) -> str:
    """Why something cannot be tried here; empty if it can."""
    module = NEEDED.get(name)
    if not bench.is_real and (module is not None or name not in KINDS):
        return NEEDS_CARD
    if module is not None and importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    return ""
