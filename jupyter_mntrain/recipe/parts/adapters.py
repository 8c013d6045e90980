"""The section of adapters, and which linear layers of a model have one. Pure; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.text.spelling import use_nearest

End = Literal["embedding", "head"]
"""Of a model: its token embedding, or its output projection."""
LinearShape = tuple[int, int]
"""Of a linear layer's weight: values that it gives, and values that it takes."""

NF4_BLOCK = 64
"""Values that share a scale, as in the paper of QLoRA."""
NF4_SCALE_BLOCK = 256
"""Most scales that share a scale of their own; likewise."""
NF4_VALUES = 16
"""That four bits tell apart."""

_INDEX_BYTES, _COPIES = 8, 3
"""For each value, while torchao gives back a whole weight: of what it is looked up by, an int64 for
each in two tensors of half as many; and how often it is there itself."""


class AdaptersSection(UserRecord, frozen=True):
    """LoRA adapters (arXiv 2106.09685), by peft: small matrices beside frozen linear layers.

    ``rank`` 0 has none, and trains all weights. A layer's output gets ``alpha`` / ``rank`` times
    that of its adapter; ``alpha`` defaults to twice the rank. ``dropout`` applies to the adapters'
    inputs. ``modules`` is a list of linear layers like ``["q_proj", "v_proj"]``, or
    ``"all-linear"``: all but the output projection. ``quantize_base = "nf4"`` keeps the frozen
    weights of these layers in 4 bits (QLoRA, arXiv 2305.14314), by torchao. ``train_whole`` lists
    what is trained in full beside adapters, as with peft's ``modules_to_save``: ``embedding`` and
    ``head``, of which a tied model has one for both.
    """

    rank: Annotated[int, Meta(ge=0, le=65536)] = 0
    alpha: Annotated[float, Meta(gt=0.0, le=1e6)] | None = None
    dropout: Annotated[float, Meta(ge=0.0, lt=1.0)] = 0.0
    modules: Literal["all-linear"] | tuple[Annotated[str, Meta(min_length=1)], ...] = "all-linear"
    quantize_base: Literal["none", "nf4"] = "none"
    train_whole: tuple[End, ...] = ()

    @property
    def chosen_alpha(self) -> float:
        return 2.0 * self.rank if self.alpha is None else self.alpha

    @property
    def scale(self) -> float:
        """What an adapter's output is multiplied with."""
        return self.chosen_alpha / self.rank

    @property
    def quantizes(self) -> bool:
        """Whether weights beside adapters are kept in 4 bits."""
        return self.quantize_base != "none"

    def trains(self, end: End, *, is_tied: bool) -> bool:
        """Whether the embedding or the head has gradients."""
        return not self.rank or (bool(self.train_whole) if is_tied else end in self.train_whole)


def check_adapters(section: AdaptersSection) -> None:
    """Refuse fields of adapters that there are none of.

    Raises:
        RecipeError: naming the field and what to change.
    """
    usual = AdaptersSection()
    for field in ("alpha", "dropout", "modules", "quantize_base", "train_whole"):
        if not section.rank and getattr(section, field) != getattr(usual, field):
            cause = f"adapters.{field}: there are no adapters, because adapters.rank is 0"
            raise RecipeError(cause, fix=f"set a rank, for example 16, or leave {field} out")
    if not section.modules:
        cause = "adapters.modules = []: no layer would have an adapter"
        raise RecipeError(cause, fix='use "all-linear", or name layers: ["q_proj", "v_proj"]')


def check_base(section: AdaptersSection, model_type: str, *, transposed: bool) -> None:
    """Refuse to quantize weights that torchao cannot multiply with.

    Args:
        transposed: whether linear layers of the model hold their weights as (in, out).

    Raises:
        RecipeError: they are transposed.
    """
    if section.quantizes and transposed:
        cause = f'adapters.quantize_base = "{section.quantize_base}": {model_type} holds its '
        cause += "weights transposed, which torchao does not compute with in 4 bits"
        raise RecipeError(cause, fix="leave quantize_base out, or use a model of another family")


def adapted(section: AdaptersSection, linears: Mapping[str, LinearShape]) -> list[str]:
    """Names of the linear layers that have an adapter.

    Args:
        linears: the shapes of those that may have one, by name, like ``self_attn.q_proj``.

    Raises:
        RecipeError: a module that is asked for is not there, is smaller than the rank, or cannot
            be quantized.
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
        if section.quantizes and math.prod(linears[name]) % NF4_BLOCK:
            given, taken = linears[name]
            cause = f'adapters.quantize_base = "{section.quantize_base}": {_last(name)} is '
            cause += f"{given} x {taken}, which is no whole number of blocks of {NF4_BLOCK} values"
            raise RecipeError(cause, fix="leave quantize_base out, or use other adapters.modules")
    return found


def nf4_scale_block(linear: LinearShape) -> int:
    """How many scales of a weight in NF4 share a scale of their own."""
    return math.gcd(math.prod(linear) // NF4_BLOCK, NF4_SCALE_BLOCK)


def nf4_bytes(linear: LinearShape, width: int) -> int:
    """Bytes of a weight in NF4.

    Args:
        width: of a value that it is computed with.
    """
    values = math.prod(linear)
    scales = values // NF4_BLOCK
    # Of a byte each, but for the scales of the scales, their mean and the 16 values themselves.
    return values // 2 + scales + width * (scales // nf4_scale_block(linear) + 1 + NF4_VALUES)


def dequantizing_bytes(linear: LinearShape, width: int) -> int:
    """Most bytes that are held while a whole weight is made of one in NF4.

    Args:
        width: of each of its values.
    """
    return math.prod(linear) * (_INDEX_BYTES + _COPIES * width)


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
