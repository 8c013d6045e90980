"""Pricing: seconds of one setup on a chain of places, for any split and counts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import inf
from typing import Final

from jupyter_mntrain.model.records.plan import DeviceSpeed
from jupyter_mntrain.plan.choosing.devices import Chain
from jupyter_mntrain.plan.choosing.setups import Setup
from jupyter_mntrain.plan.prediction.chain import chain_seconds, steady_seconds
from jupyter_mntrain.plan.prediction.costs import stage_cost, times_under
from jupyter_mntrain.plan.prediction.simulated import (
    FREE,
    SOCKET_BYTES,
    LinkTimes,
    Pair,
    Simulated,
    StageTimes,
)
from jupyter_mntrain.plan.prediction.simulator import simulate
from jupyter_mntrain.plan.prediction.split import RankCost, best_split
from jupyter_mntrain.recipe.memory import WIDTHS, Config
from jupyter_mntrain.recipe.orders import (
    Actions,
    Counts,
    Stages,
    choose_counts,
    make_order,
    stages_of,
)
from jupyter_mntrain.recipe.schedules import KINDS

IDLE_INTERFACE: Final = 0.5
"""Share of a step up to which messages of an interface hardly meet."""

MOST_SHARED: Final = 256
"""Microbatches times places that are walked because links share an interface."""

MOST_SLOTS: Final = 3000
"""Forward passes of a step that are walked as events, by schedules that are not eager; of a longer
one, only the begin, or an eager one in its place.
"""


class Price:
    """Prices a setup.

    Args:
        setup: whose split is open, or given.
    """

    def __init__(self, setup: Setup, config: Config, chain: Chain) -> None:
        self.setup, self.chain = setup, chain
        self.places = len(chain.places)
        self.per_rank = setup.recipe.stages_per_rank if self.places > 1 else 1
        self.layers: int = config["num_hidden_layers"]
        schedule = setup.schedule
        self.stages = (
            stages_of(schedule, self.places, self.per_rank) if self.places > 1 else Stages(1)
        )
        self._own: list[list[int]] = [[] for _ in range(self.places)]
        for stage in range(self.stages.number):
            self._own[self.stages.rank_of(stage)].append(stage)
        self._roles: dict[tuple[bool, bool, int], tuple[StageTimes, StageTimes]] = {}
        self._config = config
        recipe = setup.recipe
        tokens = recipe.microbatch_size * recipe.data.sequence_length
        self.message_bytes: float = tokens * config["hidden_size"] * WIDTHS[recipe.dtype]
        self._over_gloo = not any(place.is_gpu for place in chain.places)
        self._links = {
            pair: LinkTimes(
                link.latency_s,
                self.message_bytes / link.bytes_per_s,
                SOCKET_BYTES / link.bytes_per_s if self._over_gloo else 0.0,
            )
            for pair, link in chain.links.items()
        }
        self._nodes = [place.devices[0].node for place in chain.places]
        ends = range(self.places - 1)
        self._shared_s = self._busiest_interface()
        self._onward = [self.link(one, one + 1) for one in ends]
        self._back = [self.link(one + 1, one) for one in ends]

    def link(self, sender: int, receiver: int) -> LinkTimes:
        return self._links.get((sender, receiver), FREE)

    def times(self, split: Sequence[int]) -> list[StageTimes]:
        """Of each stage, with these layers each."""
        return [self._stage(stage, layers) for stage, layers in enumerate(split)]

    def costs(self, most: Sequence[float]) -> list[RankCost]:
        """Of each place: what a layer and the rest take per microbatch.

        With several stages per rank, one layer of each stage counts as fixed.
        """
        found = []
        for place in range(self.places):
            own = self._own[place]
            once = sum(self.total(self._stage(stage, 1)) for stage in own)
            twice = self.total(self._stage(own[0], 2))
            layer = twice - self.total(self._stage(own[0], 1))
            room = most[place] - (self.per_rank - 1)
            fit = self.layers if room == inf else max(0, int(room))
            found.append(RankCost(layer, once - layer, fit))
        return found

    def split(self, most: Sequence[float]) -> tuple[int, ...] | None:
        """The split whose slowest place is fastest; ``None`` if nothing fits."""
        extra = self.places * (self.per_rank - 1)
        totals = best_split(self.layers - extra, self.costs(most))
        if totals is None:
            return None
        split = [0] * self.stages.number
        for place, total in enumerate(totals):
            own = self._own[place]
            share, odd = divmod(total + self.per_rank - 1, self.per_rank)
            for number, stage in enumerate(own):
                split[stage] = share + (number < odd)
        return tuple(split)

    def total(self, times: StageTimes) -> float:
        """Seconds of one microbatch in a stage; DualPipeV splits only some backward passes."""
        if KINDS[self.setup.schedule].splits_backward and self.setup.schedule != "dualpipev":
            return times.forward + times.inputs + times.weights
        return times.forward + times.backward

    def bound(self, split: Sequence[int]) -> float:
        """Seconds that no order of this schedule's actions can beat.

        The slowest place computes all microbatches, after the first has come to it and, with one
        stage per rank and whole backward passes, before the last has gone back.
        """
        times, count = self.times(split), self.setup.microbatches
        computing = [0.0] * self.places
        for stage, one in enumerate(times):
            computing[self.stages.rank_of(stage)] += self.total(one)
        busiest = max(
            (count * self.crossings(pair) * link.occupied for pair, link in self._links.items()),
            default=0.0,
        )
        if self.per_rank > 1 or self.places == 1:
            return max(busiest, count * max(computing))
        forth = list(accumulate((one.forward for one in times), initial=0.0))
        home = list(accumulate((one.backward for one in times), initial=0.0))
        whole = 0.0 if self.setup.keeps_back else 1.0
        hops = list(accumulate((one.seconds for one in self._onward), initial=0.0))
        through = (
            forth[place] + hops[place] + count * computing[place] + whole * home[place]
            for place in range(self.places)
        )
        return max(busiest, *through)

    def crossings(self, pair: Pair) -> int:
        """Messages of one microbatch on a link."""
        ranks = [self.stages.rank_of(stage) for stage in range(self.stages.number)]
        neighbors = list(pairwise(ranks))
        return neighbors.count(pair) + neighbors.count((pair[1], pair[0]))

    def counts(self, split: Sequence[int]) -> Counts | None:
        """As the trainer chooses them for these times and links, or as they are given."""
        if not self.setup.is_eager:
            return None
        return choose_counts(
            self.setup.recipe,
            [self.total(one) for one in self.times(split)],
            [
                here.seconds + there.seconds
                for here, there in zip(self._onward, self._back, strict=True)
            ],
            [self.setup.microbatches] * self.places,
        )

    def seconds(self, split: Sequence[int], counts: Counts | None, *, whole: bool = False) -> float:
        """Seconds of one pass over the schedule.

        Args:
            whole: walk all of it, however long it is.
        """
        times, microbatches = self.times(split), self.setup.microbatches
        if counts is not None:
            walk = chain_seconds if whole else steady_seconds
            apart = walk(counts, times, self._onward, self._back, microbatches)
            return self._shared(apart, times, counts)
        if self.per_rank == 1 and self.stages.number * microbatches > MOST_SLOTS:
            return steady_seconds(
                self._alike_counts(), times, self._onward, self._back, microbatches
            )
        few, more = 2 * self.stages.number, 3 * self.stages.number
        if whole or microbatches <= more or self.stages.number * microbatches <= MOST_SLOTS:
            return self._walk(times, counts, microbatches).seconds
        short, longer = (self._walk(times, counts, one).seconds for one in (few, more))
        return longer + (longer - short) / (more - few) * (microbatches - more)

    def _alike_counts(self) -> Counts:
        """Of the eager schedule that computes in the same order.

        It does not wait until a message is sent, so it is a little faster over slow links.
        """
        behind, most = range(self.places, 0, -1), self.setup.microbatches
        keeps_all = self.setup.schedule == "gpipe"
        ahead = tuple(most if keeps_all else min(most, place) for place in behind)
        return Counts(ahead, (0,) * self.places)

    def computing_s(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Seconds that each place computes in one pass over the schedule."""
        microbatches, times = self.setup.microbatches, self.times(split)
        if self.setup.schedule == "dualpipev":
            walked = self._walk(times, counts, microbatches)
            return [walked.computing_s(place) for place in range(self.places)]
        found = [0.0] * self.places
        for stage, one in enumerate(times):
            is_halved = counts is not None and counts.kept_back[stage] > 0
            each = one.forward + one.inputs + one.weights if is_halved else self.total(one)
            found[self.stages.rank_of(stage)] += microbatches * each
        return found

    def _shared(self, apart: float, times: Sequence[StageTimes], counts: Counts) -> float:
        """Seconds where links of a node share its interface, from those where each is apart."""
        least = self.setup.microbatches * self._shared_s
        if least < IDLE_INTERFACE * apart:
            return apart
        if self.places * self.setup.microbatches > MOST_SHARED:
            return max(apart, least)
        return self._walk(times, counts, self.setup.microbatches).seconds

    def _busiest_interface(self) -> float:
        """Seconds per microbatch of the interface that several links share; 0 if none is shared."""
        busy: dict[tuple[str, str], list[float]] = {}
        for pair, link in self._links.items():
            occupied = self.crossings(pair) * link.occupied
            for way, place in zip(("out", "in"), pair, strict=True):
                busy.setdefault((way, self._nodes[place]), []).append(occupied)
        return max((sum(one) for one in busy.values() if len(one) > 1), default=0.0)

    def _walk(
        self, times: Sequence[StageTimes], counts: Counts | None, microbatches: int
    ) -> Simulated:
        orders = self._orders(counts, microbatches)
        kind, slowest = KINDS[self.setup.schedule], max(map(self.total, times))
        is_shared = self._shared_s > IDLE_INTERFACE / 2 * slowest
        return simulate(
            orders,
            self.stages,
            times,
            self.link,
            node_of=self._nodes.__getitem__ if is_shared else None,
            is_one_connection=self._over_gloo and kind.most == 1 and not kind.is_eager,
        )

    def _orders(self, counts: Counts | None, microbatches: int) -> tuple[Actions, ...]:
        if self.places == 1:
            return make_order("eager-1f1b", 1, microbatches)
        return make_order(
            self.setup.schedule,
            self.places,
            microbatches,
            stages_per_rank=self.per_rank,
            ahead=None if counts is None else counts.ahead,
            kept_back=None if counts is None else counts.kept_back,
        )

    def _stage(self, stage: int, layers: int) -> StageTimes:
        is_first, is_last = stage == 0, stage == self.stages.number - 1
        place = self.stages.rank_of(stage)
        key = is_first, is_last, place
        if key not in self._roles:
            self._roles[key] = self._priced(is_first, is_last, place)
        one, two = self._roles[key]
        return StageTimes(
            *(here + (layers - 1) * (more - here) for here, more in zip(one, two, strict=True))
        )

    def _priced(self, is_first: bool, is_last: bool, place: int) -> tuple[StageTimes, StageTimes]:
        """Of one and of two layers: seconds grow evenly with layers."""
        speed = self.chain.places[place].speed
        one, two = (self._cost(layers, is_first, is_last, speed) for layers in (1, 2))
        return one, two

    def _cost(self, layers: int, is_first: bool, is_last: bool, speed: DeviceSpeed) -> StageTimes:
        cost = stage_cost(
            self.setup.recipe, self._config, layers, is_first=is_first, is_last=is_last
        )
        return times_under(self.setup.schedule, cost, speed, is_first=is_first)
