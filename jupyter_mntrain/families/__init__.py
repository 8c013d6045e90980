"""Model families: describes as data how transformers lays out each one. Imports no torch.

One ``.toml`` file per ``model_type`` describes a family: which modules only the first or the last
stage has, what is done with its scores and logits, and the weights of a layer. docs/families.md
shows how to add one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.telemetry.formulas import LayerKind, ModelShape

_FOLDER = Path(__file__).parent

_COUNTS = (
    *("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size"),
    "vocab_size",
)
_MORE_COUNTS = ("num_key_value_heads", "head_dim", "max_position_embeddings")
"""Counts that a config may leave out."""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Fields by which configs of mixtures of experts are known."""


class Family(UserRecord, frozen=True):
    """A family of decoders in transformers.

    Its causal model calls a decoder with ``input_ids`` or ``inputs_embeds`` and ``position_ids``;
    its output projection is ``lm_head``. Modules are named as in the causal model, fields as in
    ``config.json``.
    """

    layer: tuple[str, ...]
    """Shape of each weight of a layer, in words for its sizes, like ``queries+keys+keys hidden``;
    with `` if FIELD``, of those that depend on the config."""
    linears: tuple[str, ...] = (
        *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
        *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    )
    """Names of the matrices of a layer, in the order of ``layer``."""
    transposed: bool = False
    """Whether matrices are stored as (in, out)."""
    last: tuple[str, ...] = ("hidden",)
    """The same for the final norm."""
    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    norm: str = "model.norm"
    attention: str = "self_attn"
    """Name of the attention in a layer."""
    positions: str | None = None
    """A learned embedding of positions, which the decoder adds to what it is given."""
    dropout: str | None = None
    """Name of the embedding's dropout."""
    embedding_dropout: str | None = None
    """Attribute with the probability of dropout on the decoder's input, if that is not a module."""
    dropouts: tuple[str, ...] = ()
    """Fields of all dropouts that are not modules, except for attention scores."""
    embedding_times: str | None = None
    """Attribute of the decoder by which it multiplies what it is given."""
    logits_times: str | None = None
    """Field of a factor of the logits."""
    logits_over: str | None = None
    """Field by which logits are divided."""
    logits_cap: str | None = None
    """Field of the cap of logits: ``cap * tanh(logits / cap)``."""
    scores_cap: str | None = None
    """The same for attention scores."""
    kind: LayerKind = LayerKind()
    """What a layer computes, for FLOPs and memory."""
    wide: int | None = None
    """Intermediate over hidden size, where a config does not say it."""
    fields: dict[str, str] = {}
    """Its names of fields that have other names than in Llama's configs."""
    defaults: dict[str, bool | int | float | str] = {}
    """Of fields that a config may lack."""
    splits_backward: bool = True
    """Whether torch can compute the gradients of its layers' inputs before those of weights."""
    unsupported: tuple[str, ...] = ()
    """Fields that must be false."""
    renamed: dict[str, str] = {}
    """Names of weights by what their files may call them, too."""

    @property
    def embedding_weight(self) -> str:
        return f"{self.embedding}.weight"

    def names_in_files(self, name: str) -> Iterator[str]:
        """Yield the names that files may use for a weight, the usual one first."""
        yield name
        yield from (theirs for theirs, ours in self.renamed.items() if ours == name)
        decoder = self.layers.partition(".")[0] + "."
        if name.startswith(decoder):  # saved without its output projection
            yield name.removeprefix(decoder)


@cache
def families() -> Mapping[str, Family]:
    """Return all families that are described, by ``model_type``."""
    paths = sorted(_FOLDER.glob("*.toml"))
    return {path.stem: _read(path) for path in paths}


def embedding_weights() -> frozenset[str]:
    """Return the names that families use for the weight of their embedding."""
    return frozenset(one.embedding_weight for one in families().values())


def _read(path: Path) -> Family:
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Family)


def family_of(config: Mapping[str, Any]) -> Family:
    """Return the family of a config that has been checked."""
    return families()[config["model_type"]]


def refuse_unknown(config: Mapping[str, Any], place: str) -> None:
    """Raise, with what to do, if a model's family is not described, or the model deviates from it.

    Args:
        place: of the model, like ``model.path = /models/some``.

    Raises:
        RecipeError: as above.
    """
    quantized = config.get("quantization_config")
    if quantized is not None:
        method = quantized.get("quant_method") if isinstance(quantized, dict) else None
        _refuse(
            f"{place}: its weights are quantized ({method or 'quantization_config'})",
            "use the model as it was before quantization, in float32 or bfloat16",
        )
    kind = config.get("model_type")
    if not isinstance(kind, str):
        _refuse(f"{place}: config.json has no model_type", "copy the model's config.json again")
    if any(config.get(name) for name in _EXPERTS):
        _refuse(f"{place}: {kind} is a mixture of experts", "use a dense model")
    family = families().get(str(kind))
    if family is None and isinstance(config.get("text_config"), dict):
        _refuse(
            f"{place}: {kind} is a model of text and images",
            "load its language model alone with transformers, and save it: "
            "model.language_model.save_pretrained(DIR)",
        )
    if family is None:
        _refuse(
            f"{place}: config.json: the model family {kind!r} is not described",
            f"use one of {', '.join(families())}; or describe it: where its embedding, layers and "
            "final norm are, and the weights of a layer (docs/families.md)",
        )
    for name in family.unsupported:
        if config.get(name):
            shown = str(config[name]).lower()
            _refuse(f"{place}: config.json: {name} = {shown} is not supported", "use another model")


def _refuse(cause: str, fix: str) -> NoReturn:
    raise RecipeError(cause, fix=fix)


def normal(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with all fields that we read, under the names that Llama's configs use."""
    family = families().get(str(config.get("model_type")))
    if family is None:
        return dict(config)
    made = dict(config)
    for ours, theirs in family.fields.items():
        if made.get(ours) is None:
            made[ours] = config.get(theirs)
    for name, value in family.defaults.items():
        if made.get(name) is None:
            made[name] = value
    hidden = made.get("hidden_size")
    if made.get("intermediate_size") is None and family.wide and isinstance(hidden, int):
        made["intermediate_size"] = family.wide * hidden
    return made


def wrong_count(config: Mapping[str, Any]) -> str | None:
    """Return a field of a :func:`normal` config that should be a count but is not."""
    family = families().get(str(config.get("model_type")))
    for name in (*_COUNTS, *(one for one in _MORE_COUNTS if config.get(one) is not None)):
        count = config.get(name)
        if not (isinstance(count, int) and count > 0):
            return f"{name if family is None else family.fields.get(name, name)} = {count}"
    return None


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """Return the dimensions that memory and FLOPs depend on."""
    config = normal(config)
    family = families().get(str(config.get("model_type")))
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    kind = LayerKind() if family is None else family.kind
    if family is not None and family.scores_cap and config.get(family.scores_cap):
        kind = msgspec.structs.replace(kind, is_capped=True)
    return ModelShape(
        layers=config["num_hidden_layers"],
        hidden_size=hidden,
        intermediate_size=config["intermediate_size"],
        heads=heads,
        key_value_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocabulary_size=config["vocab_size"],
        layer=kind,
    )


def linears(config: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the sizes of a layer's matrices by name: the numbers of outputs and inputs."""
    family = family_of(config)
    shapes = parameters(config, 1, is_first=False, is_last=False)
    matrices = [one for one in shapes if len(one) == 2]
    found = zip(family.linears, matrices, strict=True)
    return {name: (b, a) if family.transposed else (a, b) for name, (a, b) in found}


def parameters(
    config: Mapping[str, Any], layers: int, *, is_first: bool, is_last: bool
) -> tuple[tuple[int, ...], ...]:
    """Return the parameter shapes of a stage of ``layers`` layers."""
    config = normal(config)
    family, shape = family_of(config), shape_of(config)
    sizes = {
        "hidden": shape.hidden_size,
        "wide": shape.intermediate_size,
        "queries": shape.heads * shape.head_dim,
        "keys": shape.key_value_heads * shape.head_dim,
        "head": shape.head_dim,
    }

    def of(description: tuple[str, ...]) -> list[tuple[int, ...]]:
        return [made for one in description if (made := _shape(one, sizes, config)) is not None]

    vocabulary = (shape.vocabulary_size, shape.hidden_size)
    first = [vocabulary]
    if family.positions is not None:
        first.append((config["max_position_embeddings"], shape.hidden_size))
    is_shared = is_first and bool(config.get("tie_word_embeddings"))
    head = of(family.last) if is_shared else [*of(family.last), vocabulary]
    of_layers = of(family.layer) * layers
    return (*of_layers, *(first if is_first else ()), *(head if is_last else ()))


def _shape(
    words: str, sizes: Mapping[str, int], config: Mapping[str, Any]
) -> tuple[int, ...] | None:
    """Return a weight's shape, as in :attr:`Family.layer`; ``None`` if the model lacks it."""
    sums, field = _parsed(words)
    if field and not config.get(field):
        return None
    return tuple(sum(map(sizes.__getitem__, one)) for one in sums)


@cache
def _parsed(words: str) -> tuple[tuple[tuple[str, ...], ...], str]:
    """Return the words that each dimension sums, and the field that decides on the weight."""
    shape, _, field = words.partition(" if ")
    return tuple(tuple(one.split("+")) for one in shape.split()), field
