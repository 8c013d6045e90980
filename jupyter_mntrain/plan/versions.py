"""Version check: finds nodes whose versions differ from the majority."""

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
"""Not compared on nodes without GPUs."""

MUST_AGREE = frozenset({"mntrain", "torch", "transformers", "nccl", "python"})
"""Ranks can only communicate if these agree; drivers and processors may differ."""

PIP_NAMES = {"mntrain": "jupyter-mntrain", "torch": "torch", "transformers": "transformers"}

ABSENT = "not installed"
"""In place of the majority's version, where most have none."""

_SAME = "install the same version on every node"


class Divergence(Record, frozen=True):
    """A node whose version of something differs from the majority's.

    ``value`` is ``None`` if it is not installed. ``majority`` is ``None`` if there is none; then
    every node is listed.
    """

    node: str
    key: str
    value: str | None
    majority: str | None


def divergences(nodes: Sequence[NodeInfo]) -> tuple[Divergence, ...]:
    """List all disagreements, by key, then in the order of ``nodes``.

    Versions must be equal, except that Python's patch level is ignored.
    """
    return tuple(one for key in KEYS for one in _of_key(key, nodes))


def refuse_mixed(nodes: Sequence[NodeInfo]) -> None:
    """Refuse nodes whose versions must agree and do not.

    Raises:
        SpecError: naming node, package and versions.
    """
    different = [one for one in divergences(nodes) if one.key in MUST_AGREE]
    if different:
        keys = dict.fromkeys(one.key for one in different)
        said = "; ".join(_told([one for one in different if one.key == key]) for key in keys)
        fix = next((fix for one in different if (fix := _command(one))), _SAME)
        fix = f"{fix}; or, at your own risk, launch with --mixed-versions"
        raise SpecError(said, kind=Kind.MIXED_VERSIONS, fix=fix)


def _told(different: Sequence[Divergence]) -> str:
    """Describe the disagreement about one key."""
    if different[0].majority is not None:
        return "; ".join(f"{one.node} has {_described(one)}" for one in different)
    each = [f"{one.value or 'none'} on {one.node}" for one in different]
    return f"{different[0].key} differs between nodes: {', '.join(each)}"


def version_problem(one: Divergence) -> Problem:
    """Make a node's problem of a version that differs."""
    return Problem(
        kind=Kind.MIXED_VERSIONS,
        cause=_described(one),
        fix=_command(one) or _SAME,
        node=one.node,
    )


def _described(one: Divergence) -> str:
    """Return text like ``torch 2.9.0, the others have 2.13.0``."""
    others = f"the others have {one.majority}" if one.majority else "no two nodes agree"
    return f"{one.key} {one.value or ABSENT}, {others}"


def _command(one: Divergence) -> str | None:
    """Return the command that installs the majority's version, where pip can."""
    package = PIP_NAMES.get(one.key)
    if package and one.majority and one.majority != ABSENT:
        return f"pip install {package}=={one.majority} on {one.node}"
    return None


def _of_key(key: str, nodes: Sequence[NodeInfo]) -> list[Divergence]:
    known = {node.node_id: _comparable(key, node.inventory.versions) for node in nodes}
    compared = {one: of for one, of in known.items() if of is not None or key not in GPU_KEYS}
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
            majority=usual or (ABSENT if has_majority else None),
        )
        for node in nodes
        if node.node_id in compared and not (has_majority and compared[node.node_id] == usual)
    ]


def _comparable(key: str, versions: Versions) -> str | None:
    value: str | None = getattr(versions, key)
    if key == "python" and value is not None:
        return ".".join(value.split(".")[:2])
    return value
