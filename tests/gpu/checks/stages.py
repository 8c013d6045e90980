"""Check 3: several ranks train what one does, and send what they should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jupyter_mntrain.recipe.layout import Grid, lay_out
from jupyter_mntrain.recipe.parse import Recipe, parse_recipe
from tests.gpu.checks.same import compared
from tests.gpu.findings import Bench, Item, failed, skipped
from tests.gpu.ranks import Answer, Case, run_cases
from tests.gpu.settings import EXACT, WITHOUT_TF32, case
from tests.searches import runs_all

SCHEDULES = ("eager-1f1b", "eager-zero-bubble", "1f1b", "interleaved-1f1b", "zbv")
HIDDEN_SIZE = 64
"""Of ``llama-tiny``."""
FLOAT32 = 4
ENDS_IN_S = 60.0
REFERENCES = ("untied", "tied")


@dataclass(frozen=True)
class Way:
    """One way to split a training over ranks."""

    name: str
    changes: tuple[str, ...]

    @property
    def node(self) -> dict[str, str]:
        """Shards are of one node."""
        return {"node": "here"} if "shards" in self.name else {}

    @property
    def reference(self) -> str:
        return REFERENCES["tied" in self.name]


def ways(bench: Bench, ranks: int, nodes: int = 1) -> list[Way]:
    """What is tried on so many ranks; shards are never spread over nodes. A CPU only tries the
    check: ``tests/train/test_equality.py`` has all schedules.
    """
    schedules = SCHEDULES if bench.is_real or runs_all() else ("eager-1f1b", "zbv")
    found = [Way(schedule, (f"pipeline.schedule={schedule}",)) for schedule in schedules]
    tied = ("pipeline.schedule=eager-1f1b", "model.tie_embeddings=true")
    found.append(Way("eager-1f1b, tied", tied))
    if ranks == 2 and nodes == 1:
        found.append(Way("2 shards", ("data_parallel.shards=2",)))
    if ranks % 2 == 0 and ranks > 2:
        replicas = Way(
            f"2 replicas of {ranks // 2} stages, tied", ("data_parallel.replicas=2", *tied)
        )
        found = [replicas] if ranks == 6 else [*found, replicas]
    return found


def cases(bench: Bench, ranks: int, nodes: int = 1) -> list[Case]:
    """What so many ranks train."""
    shape, tried = _shape(ranks), ways(bench, ranks, nodes)
    return [case(bench, way.name, (*shape, *way.changes), **way.node) for way in tried]


def alone(bench: Bench, ranks: int) -> list[Case]:
    """The same trainings by one rank."""
    tied = {"untied": (), "tied": ("model.tie_embeddings=true",)}
    return [case(bench, name, (*_shape(ranks), *tied[name])) for name in REFERENCES]


def worlds(bench: Bench) -> tuple[int, ...]:
    """How many ranks. A CPU only tries the check: ``tests/train/test_equality.py`` has more."""
    if bench.is_real:
        return (2, 3, 6)
    return (2, 3) if runs_all() else (2,)


def check_stages(bench: Bench) -> Iterator[Item]:
    if bench.is_real and bench.cards < 2 and (why := _refused(bench)):
        yield skipped("ranks on one card", why)
        return
    trained: dict[tuple[str, ...], dict[str, Answer]] = {}
    for ranks in worlds(bench):
        shape = _shape(ranks)
        if shape not in trained:
            trained[shape] = run_cases(bench, alone(bench, ranks), environment=WITHOUT_TF32)
        answers = run_cases(
            bench, cases(bench, ranks), ranks=ranks, environment=WITHOUT_TF32, case_s=75
        )
        yield from judge(bench, ranks, answers, trained[shape])


def judge(
    bench: Bench,
    ranks: int,
    answers: dict[str, Answer],
    references: dict[str, Answer],
    nodes: int = 1,
) -> Iterator[Item]:
    """Compare with one rank's losses, and what was sent with what the layout says."""
    recipes = {one["name"]: parse_recipe("", one["settings"]) for one in cases(bench, ranks)}
    for way in ways(bench, ranks, nodes):
        answer, name = answers[way.name], f"{ranks} ranks: {way.name}"
        item = compared(name, answer, references[way.reference], EXACT)
        if item.state == "held":
            problem = _wrong_bytes(recipes[way.name], ranks, answer) or _late(bench, answer)
            item = failed(name, problem) if problem else item
        yield item


def _shape(ranks: int) -> tuple[str, ...]:
    """Enough layers for two stages on every rank, and microbatches for every schedule."""
    layers, microbatches = max(6, 2 * ranks), 2 * max(3, ranks)
    return (
        f"model.layers={layers}",
        f"pipeline.microbatches={microbatches}",
        f"train.batch_size={2 * microbatches}",
    )


def _refused(bench: Bench) -> str | None:
    """Why two ranks cannot share this card."""
    probe: Case = {"name": "probe", "kind": "collective", "device": "cuda", "timeout_s": 30}
    error = run_cases(bench, [probe], ranks=2, case_s=45)["probe"].error
    return error and f"NCCL does not run two ranks on one card here: {error}"


def _late(bench: Bench, answer: Answer) -> str:
    seconds = max(one["seconds"] for one in answer.ranks)
    if not bench.is_real or seconds <= ENDS_IN_S:
        return ""
    return f"it took {seconds:.0f} s, more than {ENDS_IN_S:.0f}"


def _wrong_bytes(recipe: Recipe, ranks: int, answer: Answer) -> str:
    """Microbatches times a boundary, in each direction; only where nothing else is sent."""
    if recipe.data_parallel.width > 1 or recipe.model.tie_embeddings:
        return ""
    for rank, told in enumerate(answer.ranks):
        expected = _sent(recipe, ranks, rank)
        for step, one in enumerate(told["steps"]):
            found = {int(peer): size for peer, size in one["sent_bytes"].items()}
            if found != expected:
                return f"step {step + 1}: rank {rank} sent {found} bytes by rank, not {expected}"
    return ""


def _sent(recipe: Recipe, ranks: int, rank: int) -> dict[int, int]:
    layout = lay_out(recipe, ranks, recipe.model.layers or 0)
    place = Grid(ranks).place_of(rank)
    boundary = recipe.microbatch_size * recipe.data.sequence_length * HIDDEN_SIZE * FLOAT32
    found: dict[int, int] = {}
    for stage in layout.stages_of(place):
        for other in (stage - 1, stage + 1):
            peer = layout.rank_of(other) if 0 <= other <= layout.last_stage else place
            if peer != place:
                found[peer] = found.get(peer, 0) + recipe.microbatches * boundary
    return found
