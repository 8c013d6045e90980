"""Achievements: what a job's ranks computed corrects what was measured of their devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.agent.gang.achieved_rates import Achievements
from jupyter_mntrain.agent.machine.devices.device_book import DeviceBook
from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model.ids import JobId, NodeId, Rank
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant, Placement
from jupyter_mntrain.model.records.metrics import RankStep
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.model.records.plan import DeviceMeasurement
from jupyter_mntrain.plan.prediction.speeds import speed_of
from jupyter_mntrain.plan.prediction.step import stage_costs
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.standin.devices import CPU, device, layer
from tests.standin.nodes import gpu, node

RECIPE = """
[model]
preset = "llama-tiny"
hidden_size = 256
dtype = "float32"
[data]
sequence_length = 256
[pipeline]
schedule = "1f1b"
microbatches = 4
split = "even"
[train]
batch_size = 4
"""
LAYERS = (layer(32, 4e-3), layer(256, 2e-2))


def expected_s(
    info: NodeInfo, ranks: int, on: int | None = None, *, text: str = RECIPE
) -> list[float]:
    """Seconds that each of two ranks computes in a step, as measured."""
    recipe = parse_recipe(text)
    config = model_config(recipe)
    assert config is not None
    tokens = 256 * recipe.microbatch_size
    speed = speed_of(info, on, "float32", ranks=ranks, hidden_size=256, tokens=tokens)
    assert speed is not None
    costs = stage_costs(recipe, config, lay_out(recipe, 2, shape_of(config).layers))
    times = [cost.times(speed) for cost in costs]
    return [recipe.microbatches * (one.forward + one.backward) for one in times]


@dataclass
class Node:
    """A node that is one of two, or both, of a job's participants."""

    path: Path
    measured: tuple[DeviceMeasurement, ...]
    cards: tuple[int, ...] = ()
    running: list[Any] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        book = DeviceBook(self.path / "devices.json")
        for one in self.measured:
            book.keep(one)
        self.devices = SimpleNamespace(book=book)
        self.jobs = SimpleNamespace(active=lambda: self.running)

    def info(self) -> NodeInfo:
        found = node("a", gpus=tuple(map(gpu, self.cards)))
        gpus = [gpu(index) for index in self.cards]
        devices = self.devices.book.valid(CPU, 4.0, gpus, "2.13.0")
        inventory = msgspec.structs.replace(found.inventory, devices=devices)
        return msgspec.structs.replace(found, inventory=inventory)

    def changed(self) -> None:
        self.changes += 1

    @property
    def slower(self) -> list[float | None]:
        devices = self.info().inventory.devices
        return [one.achieved and one.achieved.slower for one in devices]

    def run(
        self,
        computing: list[list[float]],
        first: int = 0,
        recipe: str | None = RECIPE,
        nodes: Sequence[str] = ("a",),
    ) -> None:
        """A job that has ended.

        Args:
            computing: seconds of each step of each rank of this node.
            nodes: with which it began.
        """
        placement = Placement(
            node_id=NodeId("a"),
            node="a",
            node_rank=0,
            first_rank=Rank(first),
            nproc=len(computing),
            gpus=self.cards,
            interface="lo",
            address="127.0.0.1",
            agent=("127.0.0.1:1",),
        )
        (self.path / "metrics").mkdir(exist_ok=True)
        for rank, steps in enumerate(computing, first):
            lines = [
                RankStep(
                    time_s=100.0, rank=Rank(rank), step=number, step_s=9.0, compute_s=one, flops=1e9
                )
                for number, one in enumerate(steps, 1)
            ]
            text = b"\n".join(map(msgspec.json.encode, lines))
            (self.path / "metrics" / f"rank-{rank}.ndjson").write_bytes(text)
        entry = ("-m", TRAINER, "recipe.toml") if recipe else ("script.py",)
        files = {"recipe.toml": recipe} if recipe else {"script.py": ""}
        participants = tuple(Participant(node=one) for one in nodes)
        record = SimpleNamespace(
            job_id=JobId("j-1"),
            spec=JobSpec(participants=participants, entry=entry, files=files),
            attempt=SimpleNamespace(number=1, world_size=2),
            is_queued=False,
        )
        job = SimpleNamespace(
            record=record, placement=placement, attempt=SimpleNamespace(path=self.path)
        )
        looking = Achievements(self)  # type: ignore[arg-type]
        self.running = [job]
        looking.look()
        assert self.changes == 0, "it still runs"
        self.running = []
        looking.look()
        looking.look()


def test_ranks_of_a_cpu_are_as_much_slower_as_they_were_on_average(tmp_path: Path) -> None:
    here = Node(tmp_path, (device(ranks=1), device(ranks=2, layers=LAYERS)))
    before = expected_s(here.info(), 2)
    here.run([[1.1 * before[0]] * 20, [1.3 * before[1]] * 20])
    assert here.slower == [None, pytest.approx(1.2)]
    assert here.changes == 1
    assert expected_s(here.info(), 2) == pytest.approx([1.2 * one for one in before])


def test_ranks_with_sharded_weights_are_as_much_slower_as_they_were(tmp_path: Path) -> None:
    text = RECIPE.replace("microbatches = 4", "microbatches = 2")
    text += "[data_parallel]\nshards = 2\n"
    here = Node(tmp_path, (device(layers=LAYERS),))
    (before,) = expected_s(here.info(), 1, text=text)
    here.run([[1.2 * before] * 20], recipe=text)
    assert here.slower == [pytest.approx(1.2)]


def test_ranks_of_the_replica_that_is_left_compute_what_it_computes(tmp_path: Path) -> None:
    text = RECIPE.replace("batch_size = 4", "batch_size = 8").replace("= 4", "= 2", 1)
    text += "[data_parallel]\nreplicas = 2\n"
    here = Node(tmp_path, (device(layers=LAYERS),))
    left = text.replace("replicas = 2", "replicas = 1")
    first, _ = expected_s(here.info(), 1, text=left)
    here.run([[1.2 * first] * 20], recipe=text, nodes="abcd")
    assert here.slower == [pytest.approx(1.2)]


def test_each_card_has_its_own_rate(tmp_path: Path) -> None:
    cards = [
        device(gpu=index, uuid=f"GPU-{index}", device="RTX", layers=LAYERS) for index in (0, 1)
    ]
    here = Node(tmp_path, tuple(cards), cards=(0, 1))
    before = expected_s(here.info(), 1, on=0)
    here.run([[0.8 * before[0]] * 20, [1.1 * before[1]] * 20])
    assert here.slower == [pytest.approx(0.8), pytest.approx(1.1)]


def test_the_steps_that_nothing_disturbed_count_and_not_the_warm_up(tmp_path: Path) -> None:
    here = Node(tmp_path, (device(layers=LAYERS),))
    (_, usual) = expected_s(here.info(), 1)
    here.run([[0.1 * usual] * 3 + [5 * usual] * 15 + [1.1 * usual] * 5], first=1)
    assert here.slower == [pytest.approx(1.1)]


def test_a_job_that_was_much_faster_corrects_a_measurement_that_something_disturbed(
    tmp_path: Path,
) -> None:
    """Two agents of one machine measured at once, or others computed: 4.2 times too slow."""
    here = Node(tmp_path, (device(layers=LAYERS, disturbed="alongside other processes"),))
    before = expected_s(here.info(), 1)
    assert not speed_of(here.info(), None, "float32").is_measured, "a guess"
    here.run([[before[0] / 4.2] * 20])
    assert here.slower == [pytest.approx(1 / 4.2)]
    assert expected_s(here.info(), 1) == pytest.approx([one / 4.2 for one in before])
    assert speed_of(here.info(), None, "float32").is_measured
    here.devices.book.keep(device(layers=LAYERS, time_s=200.0, disturbed="beside a job"))
    assert expected_s(here.info(), 1) == pytest.approx([one / 4.2 for one in before])


@pytest.mark.parametrize("times", [1.3, 3.0])
def test_what_something_else_held_up_is_kept_and_corrects_nothing(
    tmp_path: Path, times: float
) -> None:
    here = Node(tmp_path, (device(layers=LAYERS),))
    before = expected_s(here.info(), 1)
    here.run([[times * before[0]] * 20])
    assert here.slower == [pytest.approx(times)]
    assert expected_s(here.info(), 1) == before


def test_a_measurement_after_the_job_is_not_corrected_by_it(tmp_path: Path) -> None:
    here = Node(tmp_path, (device(layers=LAYERS),))
    before = expected_s(here.info(), 1)
    here.run([[1.2 * before[0]] * 20])
    here.devices.book.keep(device(layers=LAYERS, time_s=200.0))
    assert expected_s(here.info(), 1) == before


@pytest.mark.parametrize(
    ("steps", "recipe", "measured"),
    [
        (12, RECIPE, (device(layers=LAYERS),)),  # too few after the warm-up
        (0, RECIPE, (device(layers=LAYERS),)),
        (20, None, (device(layers=LAYERS),)),  # a script
        (20, RECIPE, ()),
        (20, RECIPE, (device(ranks=4),)),
        (20, RECIPE, (device("bfloat16"),)),
        (20, RECIPE.replace("256", "sixty"), (device(layers=LAYERS),)),
    ],
)
def test_where_nothing_can_be_said_nothing_is_kept(
    tmp_path: Path, steps: int, recipe: str | None, measured: tuple[DeviceMeasurement, ...]
) -> None:
    here = Node(tmp_path, measured)
    here.run([[1.0] * steps], recipe=recipe)
    assert here.slower == [None] * len(measured)
    assert here.changes == 0
