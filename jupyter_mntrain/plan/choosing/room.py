"""Room: what each place of a pipeline needs of its memory, and how many layers fit. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.plan.choosing.devices import Chain
from jupyter_mntrain.plan.choosing.setups import Setup, replaced
from jupyter_mntrain.recipe.layout import Layout, lay_out
from jupyter_mntrain.recipe.memory import Config, gpu_overhead, place_forecast
from jupyter_mntrain.recipe.orders import Counts
from jupyter_mntrain.recipe.sections import Recipe


class Shortfall(Record, frozen=True):
    """A place that is too small.

    Args:
        place: in the pipeline.
    """

    place: int
    needed_bytes: float
    limit_bytes: float

    @property
    def missing_bytes(self) -> float:
        return self.needed_bytes - self.limit_bytes


class Room:
    """Memory of a setup on a chain, for any split and counts.

    Args:
        setup: whose split and counts are open, or given.
    """

    def __init__(self, setup: Setup, config: Config, chain: Chain) -> None:
        self._setup, self._config, self._chain = setup, config, chain
        self._own: list[tuple[int, ...]] = []
        self._known: dict[tuple[object, ...], float] = {}
        self.is_unlimited = all(place.memory_bytes is None for place in chain.places)

    def needed(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Return the bytes that each place needs, by the recipe's estimate.

        Args:
            counts: where the schedule lets them be chosen.
        """
        layout = self._layout(split)
        return [self._place(layout, place, counts) for place in range(layout.world_size)]

    def on_host(self, split: Sequence[int], counts: Counts | None) -> list[float]:
        """Return the bytes that each rank of a place keeps in host memory beside its GPU."""
        layout, recipe = self._layout(split), self._with(counts)
        return [
            float(place_forecast(recipe, self._config, layout, number).host)
            if place.is_gpu
            else 0.0
            for number, place in enumerate(self._chain.places)
        ]

    def lack(self, split: Sequence[int], counts: Counts | None) -> Shortfall | None:
        """The place that misses most; ``None`` if all is known to fit, or unknown."""
        if self.is_unlimited:
            return None
        lacks = [
            Shortfall(number, size, place.memory_bytes)
            for number, (place, size) in enumerate(
                zip(self._chain.places, self.needed(split, counts), strict=True)
            )
            if place.memory_bytes is not None and size > place.memory_bytes
        ]
        return max(lacks, key=lambda lack: lack.missing_bytes, default=None)

    def most_layers(self, counts: Counts | None) -> list[float]:
        """How many layers fit into each place, roughly: memory grows evenly with them.

        May be below 1.
        """
        places = len(self._chain.places)
        if self.is_unlimited:
            return [inf] * places
        per_rank = self._setup.recipe.stages_per_rank if places > 1 else 1
        share = max(1, self._config["num_hidden_layers"] // (places * per_rank))
        here, more = (
            self.needed([count] * places * per_rank, counts) for count in (share, share + 1)
        )
        return [
            inf
            if place.memory_bytes is None
            else per_rank * share + per_rank * (place.memory_bytes - one) / max(other - one, 1.0)
            for place, one, other in zip(self._chain.places, here, more, strict=True)
        ]

    def _layout(self, split: Sequence[int]) -> Layout:
        recipe = replaced(self._setup.recipe, split=tuple(split))
        return lay_out(recipe, len(self._chain.indices), sum(split))

    def _place(self, layout: Layout, place: int, counts: Counts | None) -> float:
        if not self._own:
            self._own = [layout.stages_of(one) for one in range(layout.world_size)]
        own = tuple(len(layout.stages[stage]) for stage in self._own[place])
        held = None if counts is None else (counts.ahead[place], counts.kept_back[place])
        # With the same counts, places between the first and the last are alike.
        is_inner = counts is not None and 0 < place < layout.world_size - 1
        end = None if is_inner else place
        key = end, own, held, self._chain.places[place].is_gpu
        if key not in self._known:
            self._known[key] = self._estimated(layout, place, counts)
        return self._known[key]

    def _estimated(self, layout: Layout, place: int, counts: Counts | None) -> float:
        recipe = self._with(counts)
        estimate = place_forecast(recipe, self._config, layout, place)
        if not self._chain.places[place].is_gpu:  # its memory is the host's
            return float(estimate.total + estimate.host)
        is_tied = bool(self._config.get("tie_word_embeddings"))
        overhead = gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied)
        return float(estimate.total + overhead.total)

    def _with(self, counts: Counts | None) -> Recipe:
        recipe = self._setup.recipe
        if counts is None:
            return recipe
        kept = counts.kept_back if self._setup.keeps_back else "auto"
        return replaced(recipe, in_flight=counts.ahead, kept_back=kept)
