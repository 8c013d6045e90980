"""Equality: a pipeline trains exactly like one process."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock

from tests.train.equality_cases import LIMITS, Outcome, cases
from tests.train.ranks import run_ranks
from tests.train.sync_outcome import SyncOutcome

TIMEOUT_S = 1200
"""Of all cases of a world: they are dozens, and other tests run alongside them."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S + 60)]

MET_LOSS = 1e-6
"""Relative, of replicas that sync rarely, in each of their steps."""

_PARAMETERS = [(world_size, name) for world_size in (1, 2, 3, 4) for name in cases(world_size)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all workers find what came out."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")
def outcome(shared: Path) -> Callable[[int, str], Outcome]:
    """All cases of a world size run in one set of ranks; the first test of any worker pays."""

    @cache
    def run(world_size: int) -> dict[str, Outcome]:
        path = shared / f"world-{world_size}.json"
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                _run_all_cases(world_size, shared)
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome])

    return lambda world_size, name: run(world_size)[name]


def _run_all_cases(world_size: int, directory: Path) -> None:
    recipe = directory / f"world-{world_size}" / "recipe.toml"
    recipe.parent.mkdir()
    nodes = ["here"] * world_size
    ended = run_ranks(recipe, nodes, program=_compare, timeout_s=TIMEOUT_S)
    assert [one.exit_code for one in ended] == [0] * world_size, ended[0].err[-4000:]


def _compare(words: list[str]) -> None:
    from tests.train.equality import run_all

    run_all(str(Path(words[0]).parent.parent))


@pytest.mark.parametrize(("world_size", "name"), _PARAMETERS)
def test_pipeline_equals_one_process(
    outcome: Callable[[int, str], Outcome], world_size: int, name: str
) -> None:
    result = outcome(world_size, name)
    assert result.beyond() == {}, result.worst
    assert result.sent_bytes == result.expected_bytes


@pytest.mark.parametrize("world_size", [2, 4])
def test_replicas_that_meet_rarely_equal_one_process_that_plays_them_all(
    outcome: Callable[[int, str], Outcome], shared: Path, world_size: int
) -> None:
    outcome(world_size, next(iter(cases(world_size))))
    path = shared / f"syncs-{world_size}.json"
    met = msgspec.json.decode(path.read_bytes(), type=SyncOutcome)
    assert met.loss_error <= MET_LOSS
    assert met.weight_error <= LIMITS["trained_weight_error"]
    assert met.averaged_error <= LIMITS["loss_error"]
    assert met.rounding["float32"] <= LIMITS["loss_error"]
    assert met.rounding["bfloat16"] <= 2**-7
    assert met.rounding["int8"] <= 1 / 127
    assert met.differing == (), "after a resume between two syncs"
