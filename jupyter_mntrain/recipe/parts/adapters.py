"""The section of adapters, and which linear layers of a model have one. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.spelling import use_nearest

LinearShape = tuple[int, int]
"""Of a linear layer's weight: values that it gives, and values that it takes."""


class AdaptersSection(UserRecord, frozen=True):
    """LoRA adapters (arXiv 2106.09685), by peft: small matrices beside frozen linear layers.

    ``rank`` 0 has none, and trains all weights. A layer's output gets ``alpha`` / ``rank`` times
    that of its adapter; ``alpha`` defaults to twice the rank. ``dropout`` applies to the adapters'
    inputs. ``modules`` is a list of linear layers like ``["q_proj", "v_proj"]``, or
    ``"all-linear"``: all but the output projection.
    """

    rank: Annotated[int, Meta(ge=0, le=65536)] = 0
    alpha: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    dropout: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    modules: Literal["all-linear"] | tuple[Annotated[str, Meta(min_length=1)], ...] = "all-linear"

    @property
    def chosen_alpha(self) -> float:
        return 2.0 * self.rank if self.alpha is None else self.alpha

    @property
    def scale(self) -> float:
        """What an adapter's output is multiplied with."""
        return self.chosen_alpha / self.rank


def check_adapters(section: AdaptersSection) -> None:
    """Refuse fields of adapters that there are none of.

    Raises:
        RecipeError: naming the field and what to change.
    """
    usual = AdaptersSection()
    for field in ("alpha", "dropout", "modules"):
        if not section.rank and getattr(section, field) != getattr(usual, field):
            cause = f"adapters.{field}: there are no adapters, because adapters.rank is 0"
            raise RecipeError(cause, fix=f"set a rank, for example 16, or leave {field} out")
    if not section.modules:
        cause = "adapters.modules = []: no layer would have an adapter"
        raise RecipeError(cause, fix='use "all-linear", or name layers: ["q_proj", "v_proj"]')


def adapted(section: AdaptersSection, linears: Mapping[str, LinearShape]) -> list[str]:
    """Names of the linear layers that have an adapter.

    Args:
        linears: the shapes of those that may have one, by name, like ``self_attn.q_proj``.

    Raises:
        RecipeError: a module that is asked for is not there, or is smaller than the rank.
    """
    found = list(linears)
    if section.modules != "all-linear":
        for module in section.modules:
            if not any(_is_named(name, module) for name in linears):
                raise _unknown(module, linears)
        found = [name for name in linears if any(_is_named(name, m) for m in section.modules)]
    for name in found:
        if section.rank > min(linears[name]):
            given, taken = linears[name]
            cause = f"adapters.rank = {section.rank}: {_last(name)} is {given} x {taken}, "
            cause += "and an adapter of a higher rank than its layer adds nothing"
            most = min(min(linears[one]) for one in found)
            raise RecipeError(cause, fix=f"use at most {most}, or other adapters.modules")
    return found


def adapter_shapes(rank: int, linear: LinearShape) -> tuple[LinearShape, LinearShape]:
    """Shapes of the two matrices beside a linear layer."""
    given, taken = linear
    return (rank, taken), (given, rank)


def _is_named(name: str, module: str) -> bool:
    return name == module or name.endswith(f".{module}")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _unknown(module: str, linears: Mapping[str, LinearShape]) -> RecipeError:
    known = list(dict.fromkeys(map(_last, linears)))
    cause = f'adapters.modules: no layer of the model has a linear layer "{module}"'
    fix = use_nearest(module, known, f'use "all-linear", or some of {", ".join(known)}', most=1)
    return RecipeError(cause, fix=fix)
