"""Version check: which node's versions differ from the majority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import NodeInfo, Versions

KEYS = ("mntrain", "torch", "transformers", "cuda", "nccl", "python", "platform", "driver")

GPU_KEYS = frozenset({"cuda", "nccl", "driver"})
"""A node without GPUs has none of these, and that is no disagreement."""

MUST_AGREE = frozenset({"mntrain", "torch", "transformers", "nccl", "python"})
"""What ranks exchange depends on these; drivers and processors may well differ."""

PIP_NAMES = {"mntrain": "jupyter-mntrain", "torch": "torch", "transformers": "transformers"}

_SAME = "install the same version on every node"


class Divergence(Record, frozen=True):
    """A node whose version of something is not the majority's.

    ``value`` is ``None`` where it is not installed. ``majority`` is ``None`` where no version has
    one: then every node is listed, for nobody can say who is wrong.
    """

    node: str
    key: str
    value: str | None
    majority: str | None


def divergences(nodes: Sequence[NodeInfo]) -> tuple[Divergence, ...]:
    """All disagreements, by key, then in the order of ``nodes``.

    Versions are compared as they are, Python's by its minor version: 3.11.7 and 3.11.9 agree.
    """
    return tuple(one for key in KEYS for one in _of_key(key, nodes))


def refuse_mixed(nodes: Sequence[NodeInfo]) -> None:
    """Raises:
    SpecError: versions that must agree do not; the message names node, package and versions.
    """
    different = [one for one in divergences(nodes) if one.key in MUST_AGREE]
    if different:
        keys = dict.fromkeys(one.key for one in different)
        said = "; ".join(_told([one for one in different if one.key == key]) for key in keys)
        fix = next((fix for one in different if (fix := _command(one))), _SAME)
        raise SpecError(said, fix=f"{fix}; or, at your own risk, launch with --mixed-versions")


def _told(different: Sequence[Divergence]) -> str:
    """Of one key: who has another version than the rest, or who has which."""
    if different[0].majority is not None:
        return "; ".join(f"{one.node} has {_described(one)}" for one in different)
    each = [f"{one.value or 'none'} on {one.node}" for one in different]
    return f"{different[0].key} differs between nodes: {', '.join(each)}"


def version_problem(one: Divergence) -> Problem:
    """A version that differs, as a problem of its node."""
    return Problem(
        kind=Kind.MIXED_VERSIONS,
        cause=_described(one),
        fix=_command(one) or _SAME,
        node=one.node,
    )


def _described(one: Divergence) -> str:
    """Like ``torch 2.9.0, the others have 2.13.0``."""
    others = f"the others have {one.majority}" if one.majority else "no two nodes agree"
    return f"{one.key} {one.value or 'not installed'}, {others}"


def _command(one: Divergence) -> str | None:
    """The command that does it, where there is one."""
    package = PIP_NAMES.get(one.key)
    if package and one.majority and one.majority != "not installed":
        return f"pip install {package}=={one.majority} on {one.node}"
    return None


def _of_key(key: str, nodes: Sequence[NodeInfo]) -> list[Divergence]:
    compared = {node.node_id: _comparable(key, node.inventory.versions) for node in nodes}
    if key in GPU_KEYS:
        compared = {node_id: value for node_id, value in compared.items() if value is not None}
    counts = Counter(compared.values()).most_common(2)
    if len(counts) < 2:
        return []
    has_majority = counts[0][1] > counts[1][1]
    usual = counts[0][0] if has_majority else None
    return [
        Divergence(
            node=node.name,
            key=key,
            value=getattr(node.inventory.versions, key),
            majority=usual or ("not installed" if has_majority else None),
        )
        for node in nodes
        if node.node_id in compared and not (has_majority and compared[node.node_id] == usual)
    ]


def _comparable(key: str, versions: Versions) -> str | None:
    value: str | None = getattr(versions, key)
    if key == "python" and value is not None:
        return ".".join(value.split(".")[:2])
    return value
