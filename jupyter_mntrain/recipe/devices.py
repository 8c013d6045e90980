"""Devices: resolves settings that depend on the GPUs, and refuses what these cannot do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from jupyter_mntrain import __version__
from jupyter_mntrain.families import shape_of
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.api import LeaseGrant
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.job import Participant, Placement
from jupyter_mntrain.model.records.node import Availability, Gpu, NodeInfo, Tools, Versions
from jupyter_mntrain.recipe.combinations import check_attention, check_compile, check_precision
from jupyter_mntrain.recipe.layout import lay_out, make_grid
from jupyter_mntrain.recipe.memory import Config, fitting_loss, forecast, gpu_overhead, model_config
from jupyter_mntrain.recipe.schedules import KINDS
from jupyter_mntrain.recipe.sections import AttentionKind, Dtype, LossKind, Precision, Recipe
from jupyter_mntrain.recipe.stored import is_open, resolved

# Seats: what each rank of a job computes on. Pure; imports no torch.


_CPU_BUILD = "+cpu"
"""Suffix of the version of a torch without GPU support."""

_ALL = Availability()

VARLEN_TORCH = (2, 12)
"""The first torch whose ``varlen_attn`` has all that is used of it; 2.11's lacks ``enable_gqa``."""

_NUMBERS = re.compile(r"(\d+)\.(\d+)")


class Seat(Record, frozen=True):
    """The device and software that one rank computes with.

    Args:
        node: its name.
        gpu: the GPU, for people; ``None`` on a CPU.
        capability: its compute capability; ``None`` if it is unknown.
        memory_bytes: that ranks may use of it; ``None`` if it is unknown.
        tools: what the rank's interpreter has; ``None`` if it is unknown.
        has_varlen: whether its torch has flash attention for documents of different lengths;
            ``None`` if it is unknown.
        compresses: whether its mntrain can compress what stages send.
    """

    node: str
    gpu: str | None = None
    capability: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    tools: Tools | None = None
    has_varlen: bool | None = None
    compresses: bool = True


def seats_of(
    recipe: Recipe, participants: Sequence[Participant], infos: Sequence[NodeInfo]
) -> tuple[Seat, ...]:
    """Return the seats of a job, by rank.

    Args:
        infos: the participants' nodes, in the same order, with the versions that the job runs in.
    """
    pairs = zip(participants, infos, strict=True)
    return tuple(
        seat
        for one, info in pairs
        for seat in _on_node(
            recipe, info.name, one, info.inventory.versions, info.inventory.gpus, info.availability
        )
    )


def leased_seats(
    recipe: Recipe, placements: Sequence[Placement], grants: Sequence[LeaseGrant]
) -> tuple[Seat, ...]:
    """Return the seats of an attempt, by rank; nodes that do not report their versions have none.

    Args:
        grants: of the leases, in the same order.
    """
    pairs = zip(placements, grants, strict=True)
    return tuple(
        seat
        for one, grant in pairs
        if grant.versions is not None
        for seat in _on_node(recipe, one.node, one, grant.versions, grant.gpus)
    )


def _on_node(
    recipe: Recipe,
    node: str,
    asked: Participant | Placement,
    versions: Versions,
    gpus: Sequence[Gpu],
    availability: Availability = _ALL,
) -> Iterator[Seat]:
    on_cpu = Seat(node=node, tools=versions.tools, compresses=versions.compresses)
    has_cuda = not (versions.torch or "").endswith(_CPU_BUILD)
    if recipe.train.device == "cpu" or not asked.gpus or not has_cuda:
        yield from [on_cpu] * asked.nproc
        return
    cards = {gpu.index: gpu for gpu in gpus}
    for index in asked.gpus:
        card = cards.get(index)
        free = None if card is None else card.free_bytes(shares=asked.shares_gpus)
        yield Seat(
            node=node,
            gpu=f"GPU {index}" if card is None else f"GPU {index}, {card.name}",
            capability=None if card is None else card.compute_capability,
            memory_bytes=None if free is None else availability.memory_of(free),
            tools=versions.tools,
            has_varlen=_has_varlen(versions.torch),
            compresses=versions.compresses,
        )


def _has_varlen(torch: str | None) -> bool | None:
    """Whether this torch version has the varlen kernel, for grouped queries and windows, too."""
    found = _NUMBERS.match(torch or "")
    return None if found is None else (int(found[1]), int(found[2])) >= VARLEN_TORCH


# Limits: what a GPU, or a node without a compiler, cannot do. Pure; imports no torch.


BFLOAT16_CAPABILITY = (8, 0)
"""Compute capability of the first NVIDIA GPUs with bfloat16 tensor cores, Ampere."""

COMPILE_CAPABILITY = (7, 0)
"""Compute capability of the oldest GPUs that triton supports (torch/utils/_triton.py): Volta."""

FLASH_CAPABILITY = (8, 0)
"""The same for flash-attn 2, by its README, and for torch's kernel: Ampere."""

_TRITON = frozenset({"triton", "pytorch-triton"})
"""The second is its name for nightly builds of torch."""

_COMPILERS = "apt install gcc g++ python3-dev"


class Lack(NamedTuple):
    """What a node lacks, to complete "has no ...", and what to do."""

    what: str
    fix: str


class _Need(NamedTuple):
    """A setting and what it requires of each rank's seat."""

    setting: str
    otherwise: str
    """What to do without it."""
    name: str
    """The setting, as ``section.field``."""
    compiles: bool = False
    package: str | None = None
    extra: str = ""
    """What to pass to pip to install the package."""
    least: tuple[int, int] | None = None
    """Lowest compute capability that works."""
    on_gpu: bool = False
    """Whether it runs on GPUs only."""
    varlen: bool = False
    """Whether torch must have the varlen kernel."""


def refuse_unable(recipe: Recipe, seats: Sequence[Seat], *, is_resumed: bool = False) -> None:
    """Refuse GPUs and nodes that lack what the recipe needs; unknown properties are accepted.

    Args:
        recipe: resolved.
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
        if recipe.pipeline.transfer != "auto" and not seat.compresses:
            cause = "pipeline.transfer: the mntrain of this node is older and does not know it"
            fix = f"install mntrain {__version__} there, or leave transfer out"
            raise RecipeError(cause, fix=fix, node=seat.node)
    # Last: where a card made the dtype float32, to ask for bfloat16 would not help.
    check_attention(recipe)


def lacking_tools(tools: Tools, *, on_gpu: bool) -> Lack | None:
    """Return the tool that torch.compile would miss; ``None`` if there is all that it needs.

    Triton builds its launchers in C (``triton/runtime/build.py``), Inductor its CPU kernels in C++
    (``_inductor/config.py``).
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
    """Whether all seats can do what a setting asks for, as far as is known.

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


# Choices: what a job does where its recipe leaves that to the GPUs. Pure; imports no torch.
#
# Decided once per job from all of its ranks, so that all agree, and kept with the job: a restart or
# a resumed job does not choose again.


COMPILED_STEPS = 1000
"""Compiling takes a minute or more, and saves perhaps a fifth of a step: fewer steps of usual
length do not win that back."""

LINE_COLUMNS = 80

_LARGEST_HEAD = 192
"""Above it, flash kernels have no backward pass on consumer cards (torch's ``sdp_utils.cpp``)."""

_SHORT: Mapping[str, str] = {"flash_attention_2": "flash-attn", "flex_attention": "flex"}

_FULL: Mapping[str, str] = {"": "", "flash-attn": "flash-attn"}

_WORDS: Mapping[Precision, str] = {
    "float32-master": "float32 masters",
    "stochastic-rounding": "stochastic rounding",
    "plain": "plain updates",
}


def choose(recipe: Recipe, seats: Sequence[Seat]) -> dict[str, str]:
    """Choose a value for each setting that the recipe leaves to the devices.

    Args:
        seats: of all ranks, in their order.

    Returns:
        Values by ``section.field``, as for :func:`resolved`.
    """
    chosen: dict[str, str] = {}
    if is_open(recipe, "model.dtype"):
        chosen["model.dtype"] = "float32" if _without_bfloat16(seats) else "bfloat16"
    config = model_config(recipe)
    if config is not None:
        chosen |= _by_model(resolved(recipe, chosen), config, seats)
    known = resolved(recipe, chosen)
    if is_open(recipe, "optimizer.precision") and known.dtype == "bfloat16":
        chosen["optimizer.precision"] = _precision(known, config, seats)
    if is_open(recipe, "memory.compile"):
        chosen["memory.compile"] = "true" if _is_to_compile(known, seats) else "false"
    return chosen


def attention_for(
    dtype: Dtype,
    seats: Sequence[Seat],
    *,
    head_dim: int,
    dropout: float,
    is_capped: bool = False,
) -> AttentionKind:
    """Return the fastest attention on all ranks that keeps packed documents apart.

    In float32 there is no flash kernel, and flex attention may need too much shared memory.

    Args:
        dtype: of activations.
        dropout: of attention; torch's kernel for documents has none.
        is_capped: whether scores are; torch's kernel for documents cannot.
    """
    if dtype != "bfloat16" or dropout or not all(map(_has_bfloat16, seats)):
        return "sdpa"
    if head_dim <= _LARGEST_HEAD and head_dim % 8 == 0:
        if all(seat.has_varlen for seat in seats) and not is_capped:
            return "varlen"
        if all(map(partial(_has_package, "flash-attn"), seats)):
            return "flash_attention_2"
    return "flex_attention" if all(map(_can_compile, seats)) else "sdpa"


def loss_for(recipe: Recipe, vocabulary_size: int, seats: Sequence[Seat]) -> LossKind:
    """Return the recipe's loss, with ``auto`` resolved for these seats."""
    # Liger computes gradients in the forward pass and scales them in place in the backward pass: a
    # schedule that splits the backward pass would scale them twice.
    is_open_to_liger = recipe.memory.loss == "auto"
    is_open_to_liger &= not KINDS[recipe.schedule].splits_backward
    has_liger = all(_can_compile(seat) and _has_package("liger-kernel", seat) for seat in seats)
    return "liger" if is_open_to_liger and has_liger else fitting_loss(recipe, vocabulary_size)


def _by_model(recipe: Recipe, config: Config, seats: Sequence[Seat]) -> dict[str, str]:
    """Choose the settings that also depend on the model."""
    found: dict[str, str] = {}
    if is_open(recipe, "model.attention"):
        shape = shape_of(config)
        found["model.attention"] = attention_for(
            recipe.dtype,
            seats,
            head_dim=shape.head_dim,
            dropout=config.get("attention_dropout") or 0.0,
            is_capped=shape.layer.is_capped,
        )
    if is_open(recipe, "memory.loss"):
        found["memory.loss"] = loss_for(recipe, config["vocab_size"], seats)
    return found


def choice_line(recipe: Recipe, chosen: Mapping[str, str], seats: Sequence[Seat]) -> str:
    """Describe the choices in a line; empty if no rank has a GPU, or nothing was left to choose.

    It has at most 80 columns, unless long names are in a reason.

    Like ``auto: bfloat16, float32 masters, varlen attention, chunked loss, compiled``.

    Args:
        recipe: as it was written, or resolved.
        chosen: its automatic settings.
    """
    if not any(seat.gpu for seat in seats) or not chosen:
        return ""
    known = resolved(recipe, chosen)
    lack = _obstacle(seats) if _is_long(known) else None
    dtype, odd, why = chosen.get("model.dtype"), _without_bfloat16(seats), ""
    if dtype == "float32" and odd is not None:
        why = _why_not(odd)
    elif chosen.get("memory.compile") == "false" and lack is not None:
        why = lack
    precision = _WORDS[known.precision] if "optimizer.precision" in chosen else None
    attention, loss = chosen.get("model.attention", ""), chosen.get("memory.loss", "")
    attention = _SHORT.get(attention, attention)
    compiles = {"true": "compiled", "false": "not compiled" if why == lack else None}

    def line(kernel: str, loss: str, reason: str) -> str:
        words = [dtype, precision, kernel, loss, compiles.get(chosen.get("memory.compile", ""))]
        said = ", ".join(filter(None, words))
        return f"auto: {said}{f' ({reason})' if reason else ''}" if said else ""

    full = _FULL.get(attention, f"{attention} attention"), f"{loss} loss" if loss else ""
    if not why and dtype == "bfloat16" and odd is None:
        reasoned = line(*full, "every GPU is Ampere or newer")
        return reasoned if len(reasoned) <= LINE_COLUMNS else line(*full, "")
    reasoned = line(*full, why)
    if len(reasoned) <= LINE_COLUMNS:
        return reasoned
    return line(attention, "" if loss == "plain" else loss, why)


def _has_bfloat16(seat: Seat) -> bool:
    return seat.capability is not None and seat.capability >= BFLOAT16_CAPABILITY


def _without_bfloat16(seats: Sequence[Seat]) -> Seat | None:
    """Return the first seat that cannot compute in bfloat16; ``None`` if all can."""
    return next((seat for seat in seats if not _has_bfloat16(seat)), None)


def _why_not(seat: Seat) -> str:
    if seat.gpu is None:
        return f"{seat.node} computes on CPUs"
    if seat.capability is None:
        return f"{seat.node}: {seat.gpu}, does not tell its compute capability"
    return f"{seat.node}: {seat.gpu}, has no bfloat16"


def _precision(recipe: Recipe, config: Config | None, seats: Sequence[Seat]) -> Precision:
    """Choose float32 masters, unless a GPU has too little memory for them."""
    if config is None:
        return "float32-master"
    with suppress(RecipeError):  # whoever starts it says so
        by_place = forecast(recipe, config, len(seats))
        grid = make_grid(recipe, len(seats))
        layout = lay_out(recipe, len(seats), config["num_hidden_layers"])
        is_tied = bool(config.get("tie_word_embeddings"))
        for rank, seat in enumerate(seats):
            place = grid.place_of(rank)
            estimate = by_place[place]
            needed = estimate.total
            needed += gpu_overhead(recipe, layout, place, estimate, is_tied=is_tied).total
            if seat.memory_bytes is not None and needed > seat.memory_bytes:
                return "stochastic-rounding"
    return "float32-master"


def _is_to_compile(recipe: Recipe, seats: Sequence[Seat]) -> bool:
    if not _is_long(recipe) or recipe.adapters.quantizes:
        return False
    # Equal on CPUs and measured on no GPU yet: for those who ask for it.
    if recipe.data_parallel.shards > 1 or recipe.memory.checkpointing == "selective":
        return False
    try:
        check_compile(resolved(recipe, {"memory.compile": "true"}))
    except RecipeError:
        return False
    return all(map(_can_compile, seats))


def _is_long(recipe: Recipe) -> bool:
    """Whether a run is long enough for compiling to pay.

    Epochs, whose steps are not known yet, count as long: a minute too many costs less than a fifth
    of a long run.
    """
    return recipe.train.steps is None or recipe.train.steps >= COMPILED_STEPS


def _can_compile(seat: Seat) -> bool:
    """Whether a seat is known to have a GPU and everything that compiling for it takes."""
    return (
        seat.gpu is not None
        and seat.tools is not None
        and seat.capability is not None
        and seat.capability >= COMPILE_CAPABILITY
        and lacking_tools(seat.tools, on_gpu=True) is None
    )


def _has_package(name: str, seat: Seat) -> bool:
    return seat.tools is not None and name in seat.tools.packages


def _obstacle(seats: Sequence[Seat]) -> str | None:
    """Return the first node that lacks something for compiling, and what that is, if any."""
    for seat in seats:
        if seat.gpu is not None and seat.tools is not None:
            lack = lacking_tools(seat.tools, on_gpu=True)
            if lack is not None:
                return f"{seat.node} has no {lack.what}"
    return None
