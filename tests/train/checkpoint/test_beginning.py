"""Beginning: the checkpoint that an attempt goes on from, as it was promised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.train.checkpoint import checksums
from jupyter_mntrain.train.checkpoint.checksums import checksum
from jupyter_mntrain.train.checkpoint.resuming import begin_checksums, find_beginning
from jupyter_mntrain.train.world import World, join_world
from tests.wording import says


@pytest.fixture
def world() -> Iterator[World]:
    with join_world("cpu", 60) as made:
        yield made


def having(path: Path, *steps: int) -> CheckpointDirectory:
    directory = CheckpointDirectory(path)
    for step in steps:
        shard = directory.begin(step) / shard_name(0)
        shard.write_bytes(b"x" * 10)
        directory.publish(Manifest(step, 1, (10,), checksums=(checksum(shard),)))
    return directory


def step_of(
    world: World,
    own: CheckpointDirectory,
    copies: CheckpointDirectory | None = None,
    **told: object,
) -> tuple[Path, int] | None:
    environment = {f"MNTRAIN_{name}": str(value) for name, value in told.items()}
    found = find_beginning(world, own, environment, copies)
    return None if found is None else (found.directory.path, found.found.manifest.step)


def test_a_run_goes_on_from_its_newest(world: World, tmp_path: Path) -> None:
    assert step_of(world, having(tmp_path / "none")) is None
    own = having(tmp_path / "own", 3, 6)
    assert step_of(world, own) == (own.path, 6)
    assert step_of(world, own, RESUME_STEP=6) == (own.path, 6)


def test_a_durable_copy_counts_where_it_is_newer_than_what_nodes_have(
    world: World, tmp_path: Path
) -> None:
    own, copies = having(tmp_path / "own", 3, 6), having(tmp_path / "copies", 3, 6)
    assert step_of(world, own, copies) == (own.path, 6), "both are the same"
    having(copies.path, 9)
    (copies.of(9) / shard_name(0)).unlink()
    assert step_of(world, own, copies) == (own.path, 6), "the copy is not complete"
    newer = having(tmp_path / "newer", 12)
    assert step_of(world, own, newer) == (newer.path, 12)
    assert step_of(world, having(tmp_path / "none"), copies) == (copies.path, 6)
    (own.of(3) / shard_name(0)).unlink()
    (own.of(6) / shard_name(0)).unlink()
    assert step_of(world, own, copies) == (copies.path, 6), "what nodes have lost their shards of"


def test_what_was_promised_is_taken_though_a_copy_is_newer(world: World, tmp_path: Path) -> None:
    own, copies = having(tmp_path / "own", 3, 6), having(tmp_path / "copies", 6, 9)
    assert step_of(world, own, copies, RESUME_STEP=6) == (own.path, 6)
    gone = having(tmp_path / "gone", 3)
    assert step_of(world, gone, copies, RESUME_STEP=9) == (copies.path, 9)
    with pytest.raises(RecipeError):
        step_of(world, gone, copies, RESUME_STEP=12)


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files whose checksums are made."""
    found: list[Path] = []

    def made(path: Path) -> str:
        found.append(path)
        return checksum(path)

    monkeypatch.setattr(checksums, "checksum", made)
    return found


def test_checksums_are_made_ahead_and_once(
    world: World, tmp_path: Path, summed: list[Path]
) -> None:
    own = having(tmp_path / "own", 3, 6)
    newest = own.of(6) / shard_name(0)
    ahead = begin_checksums(world, own.path)
    ahead.begin(newest).result()
    assert summed == [newest]
    found = find_beginning(world, own, {}, checksums=ahead)
    assert found is not None
    assert found.found.manifest.step == 6
    assert summed == [newest]
    (own.of(6) / shard_name(0)).write_bytes(b"y" * 10)
    again = find_beginning(world, own, {}, checksums=begin_checksums(world, own.path))
    assert again is not None
    assert again.found.manifest.step == 3
    assert summed == [newest, newest, own.of(3) / shard_name(0)]
    assert begin_checksums(world, tmp_path / "none") is not None
    assert begin_checksums(world, None) is not None


def test_a_copy_is_read_only_if_it_is_loaded(
    world: World, tmp_path: Path, summed: list[Path]
) -> None:
    own, copies = having(tmp_path / "own", 3), having(tmp_path / "copies", 3)
    assert step_of(world, own, copies) == (own.path, 3)
    assert summed == [own.of(3) / shard_name(0)]
    having(copies.path, 6, 9)
    damaged = copies.of(9) / shard_name(0)
    damaged.write_bytes(b"y" * 10)
    assert step_of(world, own, copies) == (copies.path, 6)
    assert summed[-2:] == [damaged, copies.of(6) / shard_name(0)]
    (copies.of(6) / shard_name(0)).write_bytes(b"y" * 10)
    assert step_of(world, own, copies) == (own.path, 3)


def test_a_damaged_copy_does_not_stop_a_run_that_has_its_own(world: World, tmp_path: Path) -> None:
    own, copies = having(tmp_path / "own", 3, 6), having(tmp_path / "copies", 9)
    (copies.of(9) / shard_name(0)).write_bytes(b"x")
    told: list[str] = []
    found = find_beginning(world, own, {}, copies, told.append)
    assert found is not None
    assert found.directory.path == own.path
    assert says("durable copies in", told[0])


@pytest.mark.parametrize("there", [(), (3,), (3, 9)])
def test_it_never_goes_on_from_another_step_than_was_promised(
    world: World, tmp_path: Path, there: tuple[int, ...]
) -> None:
    own = having(tmp_path / "own", *there)
    with pytest.raises(RecipeError) as caught:
        step_of(world, own, RESUME_STEP=6)
    assert says("was to continue from checkpoint 6", caught.value.cause)
    assert sorted(own.manifests()) == list(there), "nothing was deleted"


def test_a_branch_goes_back_to_its_origin_only_while_it_has_nothing_of_its_own(
    world: World, tmp_path: Path
) -> None:
    origin, own = having(tmp_path / "origin", 3, 6, 9), having(tmp_path / "own")
    told = {"RESUME_FROM": origin.path, "RESUME_STEP": 6}
    assert step_of(world, own, **told) == (origin.path, 6)
    assert step_of(world, own, RESUME_FROM=origin.path) == (origin.path, 9)
    own = having(tmp_path / "own", 7)
    assert step_of(world, own, **told) == (own.path, 7)
    assert sorted(origin.manifests()) == [3, 6, 9]


def test_a_branch_without_its_origin_does_not_begin_at_step_1(world: World, tmp_path: Path) -> None:
    origin, own = having(tmp_path / "origin", 3), having(tmp_path / "own")
    with pytest.raises(RecipeError) as caught:
        step_of(world, own, RESUME_FROM=origin.path, RESUME_STEP=6)
    assert says("there is no checkpoint 6", caught.value.cause)
