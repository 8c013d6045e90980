"""Priced: a setup on a chain, with the best split and counts that fit. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import combinations, pairwise
from math import ceil, comb, inf
from typing import Final, NamedTuple

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.plan.choosing.devices import Chain, Device, LinkBetween
from jupyter_mntrain.plan.choosing.pricing import Price
from jupyter_mntrain.plan.choosing.room import Room, Shortfall
from jupyter_mntrain.plan.choosing.setups import Setup, replaced
from jupyter_mntrain.plan.choosing.update import End, agreement_seconds, end_seconds
from jupyter_mntrain.recipe.layout import lay_out
from jupyter_mntrain.recipe.memory import Config
from jupyter_mntrain.recipe.orders import Counts
from jupyter_mntrain.recipe.schedules import ScheduleName
from jupyter_mntrain.recipe.sections import Checkpointing, Recipe

ALIKE: Final = 0.01
"""Share of a step by which a simpler choice may be slower."""

SMALL: Final = 1000
"""Forward passes of a step up to which many counts are tried."""

MOST_WALKED: Final = 10_000
"""Forward passes that a refinement of one setup walks to find a better split."""

WORTH_MOVING: Final = 0.002
"""Share of a step that another split must save."""

FEW_SPLITS: Final = 200
"""Of which all are tried."""

FEW_STAGES: Final = 6
"""Of which every move of a layer is tried."""


class Task(Record, frozen=True):
    """What is to be planned.

    Args:
        recipe: with what depends on the devices settled.
        opened: settings to choose.
    """

    recipe: Recipe
    config: Config
    devices: tuple[Device, ...]
    links: LinkBetween
    opened: frozenset[str]


class Choice(NamedTuple):
    """A choice, with its prediction.

    Args:
        setup: with the split in its recipe.
        split: layers of each stage.
        counts: where the schedule lets them be chosen.
        pass_s: of one pass over the schedule.
        end_s: from the last backward pass to the end of the step.
    """

    setup: Setup
    split: tuple[int, ...]
    counts: Counts | None
    pass_s: float
    end_s: float

    @property
    def settings(self) -> tuple[ScheduleName, int, Checkpointing]:
        """Schedule, number of microbatches and recomputation."""
        return self.setup.schedule, self.setup.microbatches, self.setup.checkpointing

    @property
    def step_s(self) -> float:
        return self.setup.recipe.train.accumulation * self.pass_s + self.end_s

    def chosen(self, opened: Collection[str]) -> dict[str, str]:
        """Values of the settings that were open, in TOML without quotes."""
        values = {
            "pipeline.schedule": self.setup.schedule,
            "pipeline.microbatches": str(self.setup.microbatches),
            "pipeline.split": json.dumps(self.split),
            "memory.checkpointing": self.setup.checkpointing,
        }
        if self.counts is not None and len(self.split) > 1:
            values["pipeline.in_flight"] = json.dumps(self.counts.ahead)
            if self.setup.keeps_back:
                values["pipeline.kept_back"] = json.dumps(self.counts.kept_back)
        return {name: value for name, value in values.items() if name in opened}


class Priced:
    """A setup on a chain, with its memory."""

    def __init__(self, task: Task, chain: Chain, setup: Setup) -> None:
        self._task, self._chain = task, chain
        self.setup = setup
        self.price = Price(setup, task.config, chain)
        self.lack: Shortfall | None = None
        """Of the last split that did not fit."""
        self.room = Room(setup, task.config, chain)
        self._cap = self.price.places
        self._agreement_s: float | None = None
        self._ends: dict[tuple[tuple[int, ...], int], End] = {}
        self._given = self._fixed_split()

    @property
    def is_small(self) -> bool:
        return self.price.stages.number * self.setup.microbatches <= SMALL

    def least(self) -> float:
        """Seconds that no split beats, whatever fits."""
        split = self._given or self.price.split([inf] * self.price.places)
        return inf if split is None else self.bound(split)

    def first_split(self) -> tuple[int, ...] | None:
        """The given split, or that whose slowest place is fastest; ``None`` if none fits.

        With as many microbatches in flight as 1F1B has; fewer only where these do not fit.
        """
        self._cap = self.price.places
        while True:
            split = self._fitting_split()
            can_hold_less = self.setup.is_eager and self.setup.recipe.pipeline.in_flight == "auto"
            if split is not None or not can_hold_less or self._cap == 1:
                return split
            self._cap //= 2

    def _fitting_split(self) -> tuple[int, ...] | None:
        most = self.room.most_layers(self._fewest())
        for _ in range(2 * self.price.places):
            split = self._given or self.price.split(most)
            if split is None:
                self._note_lack()
                return None
            lack = self.room.lack(split, self._fewest())
            if lack is None:
                return split
            self.lack = lack
            if self._given:
                return None
            held = sum(
                layers
                for stage, layers in enumerate(split)
                if self.price.stages.rank_of(stage) == lack.place
            )
            most[lack.place] = held - 1
        return None

    def bound(self, split: Sequence[int]) -> float:
        """Of the step's duration."""
        return self.setup.recipe.train.accumulation * self.price.bound(split)

    def first(self, split: tuple[int, ...]) -> Choice:
        """With counts that the trainer would choose, or fewer that fit."""
        return self._found(split, self._first_counts(split))

    def refine(self, found: Choice) -> Choice:
        """Move layers and change counts as long as that shortens the step."""
        best = self._with_counts(found)
        if self._given:
            return best
        left = MOST_WALKED // (self.price.stages.number * self.setup.microbatches)
        while left > 0:
            moved = best
            for split in self._splits(best.split):
                if self.price.bound(split) >= moved.pass_s:
                    continue
                for counts in {best.counts, self._first_counts(split)}:
                    if self.room.lack(split, counts) is None:
                        left -= 1
                        here = self._found(split, counts)
                        if here.step_s < moved.step_s * (1 - WORTH_MOVING):
                            moved = here
            if moved is best:
                break
            best = moved
        return self._with_counts(best)

    def with_split(self, split: tuple[int, ...]) -> Choice | None:
        """With another split; ``None`` if it does not fit."""
        self.lack = self.room.lack(split, self._fewest())
        if self.lack is not None:
            return None
        return self._with_counts(self.first(split))

    def _fixed_split(self) -> tuple[int, ...] | None:
        if "pipeline.split" in self._task.opened:
            return None
        layout = lay_out(self.setup.recipe, len(self._chain.indices), self.price.layers)
        return tuple(map(len, layout.stages))

    def _fewest(self) -> Counts | None:
        """Of 1F1B or what fits of it, unless they are given."""
        if not self.setup.is_eager:
            return None
        section, places = self.setup.recipe.pipeline, self.price.places
        most = min(self.setup.microbatches, self._cap)
        ahead = tuple(min(most, places - place) for place in range(places))
        return Counts(
            ahead if section.in_flight == "auto" else section.in_flight,
            (0,) * places if section.kept_back == "auto" else section.kept_back,
        )

    def _first_counts(self, split: tuple[int, ...]) -> Counts | None:
        """As the trainer would choose them, or fewer that fit."""
        fewest, wanted = self._fewest(), self.price.counts(split)
        if fewest is None or wanted is None:
            return None
        while self.room.lack(split, wanted) is not None and wanted != fewest:
            wanted = Counts(
                _fewer(wanted.ahead, fewest.ahead), _fewer(wanted.kept_back, fewest.kept_back)
            )
        return wanted

    def _with_counts(self, found: Choice) -> Choice:
        """The same split with the best counts."""
        if found.counts is None:
            return found
        tried = {found.counts: found}
        for counts in self._counts():
            if counts not in tried and self.room.lack(found.split, counts) is None:
                tried[counts] = self._found(found.split, counts)
        best_s = min(one.step_s for one in tried.values())
        near = [one for one in tried.values() if one.step_s <= best_s * (1 + ALIKE / 4)]
        return min(near, key=lambda one: (_held(one.counts), one.step_s))

    def _counts(self) -> Iterator[Counts]:
        """Microbatches in flight and gradients kept back, growing evenly along the chain."""
        section, most = self.setup.recipe.pipeline, self.setup.microbatches
        behind = range(self.price.places)
        steps = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0) if self.is_small else (0.0, 1.0)
        growths = (0.5, 1.0, 1.5, 2.0, 3.0) if self.is_small else (1.0, 2.0)
        flying = [
            tuple(min(most, 1 + ceil(place * (1 + more))) for place in reversed(behind))
            for more in steps
        ]
        kept = [tuple(min(most, ceil(place * each)) for place in behind) for each in growths]
        if section.in_flight != "auto":
            flying = [section.in_flight]
        if section.kept_back != "auto":
            kept = [section.kept_back]
        for ahead in flying:
            for kept_back in kept if self.setup.keeps_back else [(0,) * len(behind)]:
                yield Counts(ahead, kept_back)

    def _splits(self, split: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """All splits if they are few; otherwise those with one layer moved, and of many stages,
        only from the slowest ones.
        """
        stages, layers = len(split), self.price.layers
        if comb(layers - 1, stages - 1) <= FEW_SPLITS:
            for cuts in combinations(range(1, layers), stages - 1):
                yield tuple(after - cut for cut, after in pairwise((0, *cuts, layers)))
            return
        times = [self.price.total(one) for one in self.price.times(split)]
        slowest = sorted(range(stages), key=lambda stage: -times[stage])
        givers = slowest if stages <= FEW_STAGES else slowest[:2]
        for giver in givers:
            for taker in reversed(slowest):
                if giver != taker and split[giver] > 1:
                    moved = list(split)
                    moved[giver] -= 1
                    moved[taker] += 1
                    yield tuple(moved)

    def _found(self, split: tuple[int, ...], counts: Counts | None) -> Choice:
        recipe = replaced(self.setup.recipe, split=split)
        pass_s = self.price.seconds(split, counts)
        return Choice(Setup(recipe), split, counts, pass_s, self._end(recipe, pass_s))

    def _end(self, recipe: Recipe, pass_s: float) -> float:
        """Seconds after the last backward pass, of the slowest place."""
        computing_s = recipe.train.accumulation * pass_s
        if self._agreement_s is None:
            task = self._task
            self._agreement_s = agreement_seconds(
                recipe, task.config, self._chain, task.devices, task.links
            )
        layout = lay_out(recipe, len(self._chain.indices), self.price.layers)
        slowest = 0.0
        for place in range(layout.world_size):
            own = tuple(len(layout.stages[stage]) for stage in layout.stages_of(place))
            if (own, place) not in self._ends:
                self._ends[own, place] = end_seconds(
                    recipe,
                    self._task.config,
                    layout,
                    self._chain,
                    place,
                    self._task.devices,
                    self._task.links,
                )
            slowest = max(slowest, self._ends[own, place].beside(computing_s, recipe))
        return slowest + self._agreement_s

    def _note_lack(self) -> None:
        """Of the split without limits, as nothing fits."""
        split = self.price.split([inf] * self.price.places)
        if split is not None:
            self.lack = self.room.lack(split, self._fewest()) or self.lack


def _fewer(counts: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(few, count - 1) for few, count in zip(least, counts, strict=True))


def _held(counts: Counts | None) -> int:
    return 0 if counts is None else sum(counts.ahead) + sum(counts.kept_back)
