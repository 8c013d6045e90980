"""SIGKILL of real processes, at any moment of a run or of a save."""

from __future__ import annotations

import contextlib
import random
import time
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jupyter_mntrain.launch.checkpoints.directory import CheckpointDirectory, shard_name
from jupyter_mntrain.model.records.metrics import RankStart, RankStep
from jupyter_mntrain.train.checkpoint.resuming import Held, choose, find_newest
from jupyter_mntrain.train.checkpoint.saving import Saver
from jupyter_mntrain.train.world import join_world
from tests import searches
from tests.train.forked import CONTEXT, begin, kill, two_ranks
from tests.train.ranks import TIMEOUT_S
from tests.train.test_command import read, write_text
from tests.waiting import until

pytestmark = pytest.mark.slow

STEPS = 40
CHAINS, KILLS = searches.count(1, 4), 5
MOST_STEPS = 7
"""Of an attempt that is to be killed: all of them together are fewer than ``STEPS``."""
MOST_AFTER_S = 0.02
"""From a step that was seen to the kill: about one step, so that it falls anywhere in one."""

SETTINGS = (
    *("model.preset=llama-tiny", "data.vocabulary_size=300", "data.sequence_length=16"),
    *("pipeline.microbatches=2", "train.device=cpu", "train.batch_size=4", "train.timeout_s=30"),
    *(f"train.steps={STEPS}", "report.to=[]", "output.at_end=false"),
)

SAVES = searches.count(20, 50)
SAVED_BYTES = 8 << 20
TENSORS = 16


class Run:
    """A run on two nodes with a disk each, attempt by attempt."""

    def __init__(self, text: Path, directory: Path, interval: int) -> None:
        settings = (*SETTINGS, f"data.source={text}", f"checkpoint.interval_steps={interval}")
        directory.mkdir()
        (directory / "recipe.toml").touch()
        self._words = [str(directory / "recipe.toml")]
        self._words += [word for one in settings for word in ("--set", one)]
        self._directory = directory
        self._attempts = count(1)

    def killed(self, chance: random.Random) -> dict[int, tuple[float, float]]:
        """An attempt that is killed at a random moment; loss and gradient norm of its steps."""
        attempt, victim = next(self._attempts), chance.randrange(2)
        steps, after_s = chance.randrange(MOST_STEPS), chance.uniform(0, MOST_AFTER_S)
        with two_ranks(self._words, self._directory, attempt) as ranks:
            until(lambda: self._has_made(attempt, steps) or not ranks[0].is_alive(), "the step")
            time.sleep(after_s)
            assert all(one.is_alive() for one in ranks), self._log(attempt)
            kill(ranks[victim])
            # The other one hears of it from its next collective, and may still publish before.
            ranks[1 - victim].join(TIMEOUT_S)
            assert ranks[1 - victim].exitcode == 1, self._log(attempt)
        return self._steps(attempt)

    def ended(self) -> dict[int, tuple[float, float]]:
        """An attempt that runs to the end."""
        attempt = next(self._attempts)
        with two_ranks(self._words, self._directory, attempt) as ranks:
            for one in ranks:
                one.join(TIMEOUT_S)
            assert [one.exitcode for one in ranks] == [0, 0], self._log(attempt)
        return self._steps(attempt)

    def state(self) -> dict[str, torch.Tensor]:
        """Weights, optimizer and random numbers after the last step."""
        last = f"step-{STEPS:08d}"
        shards = [
            load_file(self._directory / disk / last / shard_name(rank))
            for rank, disk in enumerate(("disk-a", "disk-b"))
        ]
        return shards[0] | shards[1]

    def _has_made(self, attempt: int, steps: int) -> bool:
        """So many, or begun where it is none."""
        path = self._directory / f"attempt-{attempt}"
        if not (path / "rank-0.ndjson").exists():
            return False
        samples = read(path, 0)
        made = sum(isinstance(one, RankStep) for one in samples)
        return made >= steps and any(isinstance(one, RankStart) for one in samples)

    def _steps(self, attempt: int) -> dict[int, tuple[float, float]]:
        found = {}
        for rank in (0, 1):
            for one in read(self._directory / f"attempt-{attempt}", rank):
                if isinstance(one, RankStep):
                    assert one.loss is not None
                    assert one.grad_norm is not None
                    found[one.step] = one.loss, one.grad_norm
        return found

    def _log(self, attempt: int) -> str:
        logs = sorted((self._directory / f"attempt-{attempt}").glob("*.log"))
        return "\n".join(log.read_text()[-2000:] for log in logs)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("data") / "text")


@pytest.fixture(scope="module")
def unbroken(
    text: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[int, tuple[float, float]], dict[str, torch.Tensor]]:
    run = Run(text, tmp_path_factory.mktemp("unbroken") / "run", interval=STEPS)
    steps = run.ended()
    assert list(steps) == list(range(1, STEPS + 1))
    return steps, run.state()


@pytest.mark.parametrize("seed", range(CHAINS))
def test_killed_five_times_anywhere_it_ends_as_one_that_never_was(
    text: Path,
    unbroken: tuple[dict[int, tuple[float, float]], dict[str, torch.Tensor]],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(seed)
    run = Run(text, tmp_path / "run", interval=chance.randrange(1, 4))
    expected, state = unbroken
    seen: set[int] = set()
    for one in [*(run.killed(chance) for _ in range(KILLS)), run.ended()]:
        assert one == {step: expected[step] for step in one}, "no difference at all"
        seen |= one.keys()
    assert seen == expected.keys()
    again = run.state()
    assert again.keys() == state.keys()
    assert not [name for name, tensor in again.items() if not torch.equal(tensor, state[name])]


def save_without_end(kept: Path, attempt: int, told: Connection) -> None:
    """Goes on from the newest, as a trainer does, and saves one step after another.

    Says of each step when its save has begun and when it is a checkpoint.
    """
    with join_world("cpu", 60) as world:
        directory = CheckpointDirectory(kept, attempt)
        saver = Saver(
            directory, world, keep=2, copies=1, attempt=attempt, digests={}, say=lambda _line: None
        )
        found = find_newest(world, directory)
        last = 0 if found is None else found.manifest.step
        directory.clean(last)
        for step in count(last + 1):
            size = SAVED_BYTES // TENSORS // 4
            tensors = {f"model/{n}": torch.full((size,), float(step)) for n in range(TENSORS)}
            saver.begin(step, tensors)
            told.send(("begun", step))
            saved = saver.finish()
            assert saved is not None
            assert saved.step == step
            told.send(("saved", step))


def newest(kept: Path) -> int:
    """The step that a run would go on from; all that is in it is of that step."""
    directory = CheckpointDirectory(kept)
    held = [Held(one, directory.shards(one)) for one in directory.manifests().values()]
    found = choose([held])
    if found is None:
        assert not held, "what was published is whole"
        return 0
    step = found.manifest.step
    tensors = load_file(directory.of(step) / shard_name(0))
    assert len(tensors) == TENSORS
    assert sum(tensor.nbytes for tensor in tensors.values()) == SAVED_BYTES
    assert all(bool((tensor == step).all()) for tensor in tensors.values())
    return step


def saver_killed(kept: Path, attempt: int, chance: random.Random) -> tuple[int, bool]:
    """A process that saves, killed in its second save or right after it.

    Returns:
        The last step that it told was saved, and whether another save was under way.
    """
    log = kept.parent / "log"
    environment = {"OMP_NUM_THREADS": "1", "HOME": str(kept.parent)}
    ours, theirs = CONTEXT.Pipe(duplex=False)
    arguments = (kept, attempt, theirs)
    process = begin(save_without_end, *arguments, environment=environment, log=log)
    theirs.close()
    heard, times = [], []
    while len(heard) < 3:  # begun, saved, begun
        assert ours.poll(TIMEOUT_S), log.read_text()
        heard.append(ours.recv())
        times.append(time.perf_counter())
    # The whole save tells how long the other one takes.
    time.sleep(chance.uniform(0, times[1] - times[0]))
    kill(process)
    with contextlib.suppress(EOFError):
        while True:
            heard.append(ours.recv())
    saved = max(step for what, step in heard if what == "saved")
    return saved, heard[-1] == ("begun", saved + 1)


def test_a_process_killed_again_and_again_while_it_saves_leaves_a_whole_checkpoint(
    tmp_path: Path,
) -> None:
    chance, kept = random.Random(7), tmp_path / "kept"
    interrupted = halves = 0
    for attempt in range(1, 2 * SAVES):
        saved, was_saving = saver_killed(kept, attempt, chance)
        assert saved <= newest(kept) <= saved + 1, "what was told to be saved is there"
        interrupted += was_saving
        halves += any(kept.glob(".step-*"))
        if interrupted == SAVES:
            break
    assert interrupted == SAVES
    assert halves > SAVES // 10, "some were cut off before they were published"
