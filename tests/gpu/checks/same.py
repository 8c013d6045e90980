"""Checks 0 and 1: ranks reach each other, and a GPU computes what a CPU does."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.findings import Bench, Item, differs, error_of, failed, judged
from tests.gpu.ranks import Answer, run_cases
from tests.gpu.settings import EXACT, ROUNDED, TIMEOUT_S, WITHOUT_TF32, settings

RANKS = 2


def check_collectives(bench: Bench) -> Iterator[Item]:
    """Two ranks, on one card if there is only one."""
    where = "on one card" if bench.is_real and bench.cards < RANKS else ""
    name = " ".join(filter(None, ("all-reduce, send and receive", where)))
    case = {
        "name": name,
        "kind": "collective",
        "device": bench.device,
        "timeout_s": TIMEOUT_S,
    }
    answer = run_cases(bench, [case], ranks=RANKS, case_s=45)[name]
    if answer.error:
        yield failed(name, answer.error)
        return
    problem = None
    for rank, told in enumerate(answer.ranks):
        if told["sums"] != [3.0]:
            problem = f"rank {rank}: 1 + 2 is {told['sums']}"
        elif told["received"] != [float(1 - rank)]:
            problem = f"rank {rank} received {told['received']}"
    yield judged(name, problem, backend=answer.first["backend"])


def check_same_as_cpu(bench: Bench) -> Iterator[Item]:
    """One rank in a world of one, as torchrun starts it."""
    ways = (
        ("float32", "float32", WITHOUT_TF32, EXACT),
        ("float32, as the trainer sets TF32", "float32", {}, ROUNDED),
        ("bfloat16", "bfloat16", {}, ROUNDED),
    )
    cpu = {
        "name": "cpu",
        "settings": settings(bench, device="cpu"),
    }
    reference = run_cases(bench, [cpu])["cpu"]
    if reference.error:
        yield failed("the same on the CPU", reference.error)
        return
    for name, dtype, environment, most in ways if bench.is_real else ways[:1]:
        case = {"name": name, "settings": settings(bench, f"model.dtype={dtype}")}
        answer = run_cases(bench, [case], environment=environment)[name]
        yield compared(name, answer, reference, most)


def compared(name: str, answer: Answer, reference: Answer, most: float) -> Item:
    """Judge losses and gradient norms by those of another run."""
    if answer.error or reference.error:
        return failed(name, answer.error or f"no reference: {reference.error}")
    problem = differs("loss", answer.losses, reference.losses, most)
    # A norm is not averaged over tokens, so it differs more.
    problem = problem or differs("gradient norm", answer.norms, reference.norms, 10 * most)
    error = error_of(answer.losses, reference.losses)
    return judged(name, problem or None, loss_error=error, last_loss=answer.losses[-1])
