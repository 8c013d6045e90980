"""Limits: what a GPU, or a node without a compiler, cannot do. Pure; imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.combinations import check_attention, check_precision
from jupyter_mntrain.recipe.devices.seats import VARLEN_TORCH, Seat
from jupyter_mntrain.recipe.sections import Recipe

BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability of the first NVIDIA GPUs with bfloat16 tensor cores, Ampere."""

COMPILE_CAPABILITY = (7, 0)
"""Of the oldest GPUs that triton supports (torch/utils/_triton.py), Volta."""

FLASH_CAPABILITY = (8, 0)
"""Of the oldest GPUs that flash-attn 2 supports, by its README: Ampere; likewise torch's kernel."""

_TRITON = frozenset({"triton", "pytorch-triton"})
"""The second is its name for nightly builds of torch."""

_COMPILERS = "apt install gcc g++ python3-dev"


class Lack(NamedTuple):
    """What a node lacks, as in "has no ...", and what to do."""

    what: str
    fix: str


class _Need(NamedTuple):
    """A setting that needs something of each rank's seat."""

    setting: str
    otherwise: str
    """What to do without it."""
    name: str
    """Of the setting: ``section.field``."""
    compiles: bool = False
    package: str | None = None
    extra: str = ""
    """What pip installs the package by."""
    least: tuple[int, int] | None = None
    """Compute capability."""
    on_gpu: bool = False
    """Whether it runs on GPUs only."""
    varlen: bool = False
    """Whether torch must have a kernel for documents."""


def refuse_unable(recipe: Recipe, seats: Sequence[Seat], *, is_resumed: bool = False) -> None:
    """Refuse GPUs and nodes that lack what the recipe needs. What is unknown is not refused.

    Args:
        recipe: settled.
        is_resumed: the job goes on with a checkpoint, whose dtype is given.

    Raises:
        RecipeError: naming the first such node and GPU, and what to change.
    """
    check_precision(recipe)
    for seat in seats:
        if recipe.dtype == "bfloat16":
            _refuse_bfloat16(seat, is_resumed=is_resumed)
        for need in _needs(recipe):
            _refuse(need, seat)
    # Last: where a card made the dtype float32, to ask for bfloat16 would not help.
    check_attention(recipe)


def lacking_tools(tools: Tools, *, on_gpu: bool) -> Lack | None:
    """What torch.compile would miss: triton builds its launchers in C
    (``triton/runtime/build.py``), Inductor its CPU kernels in C++ (``_inductor/config.py``).
    """
    if on_gpu and _TRITON.isdisjoint(tools.packages):
        return Lack("triton", fix="pip install triton")
    if on_gpu and tools.c_compiler is None:
        return Lack("C compiler", fix=_COMPILERS)
    if not on_gpu and tools.cxx_compiler is None:
        return Lack("C++ compiler", fix=_COMPILERS)
    if not tools.has_headers:
        return Lack("Python.h", fix="apt install python3-dev")
    return None


def can_do(name: str, recipe: Recipe, seats: Sequence[Seat]) -> bool:
    """Whether no seat is known to be unable to do what a setting asks for.

    Args:
        name: ``section.field``.
    """
    needs = [need for need in _needs(recipe) if need.name == name]
    try:
        for seat in seats:
            for need in needs:
                _refuse(need, seat)
    except RecipeError:
        return False
    return True


def needs_torchao(recipe: Recipe) -> bool:
    return any(need.package == "torchao" for need in _needs(recipe))


def _needs(recipe: Recipe) -> Iterator[_Need]:
    yield from _attention_needs(recipe)
    kind = recipe.optimizer.kind
    if recipe.compiles:
        yield _Need(
            "memory.compile = true",
            "use compile = false",
            name="memory.compile",
            compiles=True,
            least=COMPILE_CAPABILITY,
        )
    if recipe.memory.loss == "liger":
        yield _Need(
            'memory.loss = "liger"',
            'use "chunked"',
            name="memory.loss",
            compiles=True,
            package="liger-kernel",
            extra="jupyter-mntrain[liger]",
            least=COMPILE_CAPABILITY,
            on_gpu=True,
        )
    if recipe.trains_adapters:
        yield _Need(
            f"adapters.rank = {recipe.adapters.rank}",
            "train all weights with rank = 0",
            name="adapters.rank",
            package="peft",
            extra="jupyter-mntrain[adapters]",
        )
    if recipe.adapters.quantizes:
        yield _Need(
            f'adapters.quantize_base = "{recipe.adapters.quantize_base}"',
            "leave quantize_base out",
            name="adapters.quantize_base",
            package="torchao",
            extra="jupyter-mntrain[memory]",
        )
    if kind in {"adamw-8bit", "adamw-4bit"}:
        yield _Need(
            f'optimizer.kind = "{kind}"',
            'use "adamw" or "adafactor"',
            name="optimizer.kind",
            compiles=True,
            package="torchao",
            extra="jupyter-mntrain[memory]",
            least=COMPILE_CAPABILITY,
        )


def _attention_needs(recipe: Recipe) -> Iterator[_Need]:
    attention = f'model.attention = "{recipe.model.attention}"'
    if recipe.model.attention == "flex_attention":
        yield _Need(
            attention,
            'use "auto"',
            name="model.attention",
            compiles=True,
            least=COMPILE_CAPABILITY,
            on_gpu=True,
        )
    if recipe.model.attention == "varlen":
        yield _Need(
            attention,
            'use "auto"',
            name="model.attention",
            varlen=True,
            least=FLASH_CAPABILITY,
            on_gpu=True,
        )
    if recipe.model.attention == "flash_attention_2":
        yield _Need(
            attention,
            'use "auto"',
            name="model.attention",
            package="flash-attn",
            extra="flash-attn",
            least=FLASH_CAPABILITY,
            on_gpu=True,
        )


def _refuse_bfloat16(seat: Seat, *, is_resumed: bool) -> None:
    if seat.capability is None or seat.capability >= BFLOAT16_CAPABILITY:
        return
    cause = f'model.dtype = "bfloat16": {seat.gpu}, has no bfloat16'
    fix = 'use dtype = "float32", or leave this node out'
    if is_resumed:
        cause = f"{cause}, and the run that is resumed has bfloat16 weights"
        fix = "leave this node out, or start over with launch"
    raise RecipeError(f"{cause} {_too_old(seat, BFLOAT16_CAPABILITY)}", fix=fix, node=seat.node)


def _refuse(need: _Need, seat: Seat) -> None:
    if need.on_gpu and seat.gpu is None:
        raise RecipeError(f"{need.setting}: runs on GPUs only", fix=need.otherwise, node=seat.node)
    least, own = need.least, seat.capability
    if least is not None and own is not None and own < least:
        cause = f"{need.setting}: {seat.gpu}, is too old for it {_too_old(seat, least)}"
        fix = f"{need.otherwise}, or leave this node out"
        raise RecipeError(cause, fix=fix, node=seat.node)
    if need.varlen and seat.has_varlen is False:
        version = ".".join(map(str, VARLEN_TORCH))
        cause = f"{need.setting}: this torch has no such kernel"
        fix = f"install torch {version} or newer on every node, or {need.otherwise}"
        raise RecipeError(cause, fix=fix, node=seat.node)
    tools = seat.tools
    if tools is None:
        return
    if need.package is not None and need.package not in tools.packages:
        cause = f"{need.setting}: {need.package} is not installed"
        fix = f"pip install '{need.extra}', or {need.otherwise}"
        raise RecipeError(cause, fix=fix, node=seat.node)
    lack = lacking_tools(tools, on_gpu=seat.gpu is not None) if need.compiles else None
    if lack is not None:
        cause = f"{need.setting}: compiles kernels, and there is no {lack.what}"
        raise RecipeError(cause, fix=f"{lack.fix}, or {need.otherwise}", node=seat.node)


def _too_old(seat: Seat, least: tuple[int, ...]) -> str:
    own, needed = (".".join(map(str, one)) for one in (seat.capability or (), least))
    return f"(compute capability {own}, and {needed} is needed)"
