"""Logits: what a family does with the output projection's result: scales it, then caps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from jupyter_mntrain.recipe.families import Family


@dataclass(frozen=True)
class Shaping:
    """``cap * tanh(logits * times / over / cap)``; without a cap ``logits * times / over``."""

    times: float = 1.0
    over: float = 1.0
    cap: float | None = None

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """In the dtype of the logits, step by step as transformers does it."""
        if self.times != 1:
            logits = logits * self.times
        if self.over != 1:
            logits = logits / self.over
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def slope(self, shaped: torch.Tensor) -> torch.Tensor | float:
        """The derivative, by its result."""
        factor = self.times / self.over
        return factor if self.cap is None else (1 - (shaped / self.cap).square()) * factor

    @property
    def is_plain(self) -> bool:
        return self == PLAIN


PLAIN = Shaping()


def shaping_of(family: Family, config: Any) -> Shaping:
    """Of a model, by its transformers config."""

    def value(field: str | None) -> float | None:
        found = None if field is None else getattr(config, field)
        return None if found is None else float(found)

    times, over = value(family.logits_times), value(family.logits_over)
    return Shaping(
        times=1.0 if times is None else times,
        over=1.0 if over is None else over,
        cap=value(family.logits_cap),
    )
