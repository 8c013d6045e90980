"""Version check: finds nodes whose versions differ from the majority."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo, Versions

KEYS = ("mntrain", "torch", "transformers", "cuda", "nccl", "python", "platform", "driver")

GPU_KEYS = frozenset({"cuda", "nccl", "driver"})
"""Versions that are not compared on nodes without GPUs."""

MAY_DIFFER = frozenset({"driver"})
"""Ranks communicate, and compute the same, although these differ; each needs what its GPUs need."""

PATCH_MAY_DIFFER = frozenset({"transformers"})
"""A patch level mends errors of single models: it is told, and refuses nobody."""

PIP_NAMES = {"mntrain": "jupyter-mntrain", "torch": "torch", "transformers": "transformers"}

ABSENT = "not installed"
"""Stands for the majority's version if most nodes have none."""

_BUILD = re.compile(r"\+cu\d+$")
"""What a torch was built for; the CUDA version is compared by itself."""
_CPU_BUILD = "+cpu"

_SAME = "install the same version on every node"


class Divergence(Record, frozen=True):
    """A node whose version of something differs from the majority's.

    ``value`` is ``None`` if it is not installed. ``majority`` is ``None`` if there is none; then
    every node is listed. ``is_harmless``: it is worth a word, and keeps no job from starting.
    """

    node: str
    key: str
    value: str | None
    majority: str | None
    is_harmless: bool = False


def divergences(nodes: Sequence[NodeInfo]) -> tuple[Divergence, ...]:
    """List all disagreements, by key, then in the order of ``nodes``.

    Versions must be equal, except that the patch levels of Python and CUDA are ignored, and that a
    node without a GPU may have the CPU build of the others' torch: both speak the same Gloo. What
    differs in drivers and patch levels of transformers is listed as harmless.
    """
    return _differing([(node.name, node.inventory.versions) for node in nodes])


def refuse_mixed(nodes: Sequence[NodeInfo]) -> None:
    """Refuse nodes whose versions must agree and do not.

    Raises:
        SpecError: naming node, package and versions.
    """
    _refuse([one for one in divergences(nodes) if not one.is_harmless])


def refuse_mixed_versions(installed: Sequence[tuple[str, Versions]]) -> None:
    """Like :func:`refuse_mixed`, given each node's name and versions."""
    _refuse([one for one in _differing(installed) if not one.is_harmless])


def _refuse(different: Sequence[Divergence]) -> None:
    if different:
        fix = next((fix for one in different if (fix := _command(one))), _SAME)
        fix = f"{fix}; or, at your own risk, launch with --mixed-versions"
        raise SpecError(_said(different), kind=Kind.MIXED_VERSIONS, fix=fix)


def unacknowledged(spec: JobSpec) -> JobSpec:
    """Return a job's spec without its permission of mixed versions, which held for one launch."""
    return msgspec.structs.replace(spec, mixed_versions=False)


def version_notes(
    nodes: Sequence[NodeInfo], *, is_acknowledged: bool, taken_over: bool = False
) -> tuple[Problem, ...]:
    """Return notes of version differences in a launch that are harmless or were acknowledged.

    Args:
        is_acknowledged: it may start although versions differ that must agree.
        taken_over: that stands in the job file, and was not said of this launch.
    """
    different = divergences(nodes)
    harmless = [one for one in different if one.is_harmless]
    refused = [one for one in different if not one.is_harmless and is_acknowledged]
    whose = "in the job file" if taken_over else "for this launch"
    before = f"starts although versions differ, as acknowledged {whose}: "
    return (
        *([_note(refused, before)] if refused else ()),
        *([_note(harmless, "this hinders no job, but differs: ")] if harmless else ()),
    )


def _note(different: Sequence[Divergence], before: str) -> Problem:
    fix = next((fix for one in different if (fix := _command(one))), _SAME)
    return Problem(kind=Kind.MIXED_VERSIONS, cause=f"{before}{_said(different)}", fix=fix)


def _said(different: Sequence[Divergence]) -> str:
    keys = dict.fromkeys(one.key for one in different)
    return "; ".join(_told([one for one in different if one.key == key]) for key in keys)


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
    """Return the command or step that makes the node agree with the majority, if there is one."""
    if one.key == "platform":
        return f"leave out {one.node}, or the nodes of the other kind"
    if one.key == "cuda":
        builds = f"for CUDA {one.majority}" if one.majority else "for the same CUDA"
        return f"install a torch built {builds} on {one.node}"
    package = PIP_NAMES.get(one.key)
    if package and one.majority and one.majority != ABSENT:
        return f"pip install {package}=={one.majority} on {one.node}"
    return None


def _differing(installed: Sequence[tuple[str, Versions]]) -> tuple[Divergence, ...]:
    return tuple(one for key in KEYS for one in _of_key(key, installed))


def _of_key(key: str, installed: Sequence[tuple[str, Versions]]) -> list[Divergence]:
    found = _unlike_most(key, installed, _comparable, is_harmless=key in MAY_DIFFER)
    if found or key not in PATCH_MAY_DIFFER:
        return found
    return _unlike_most(key, installed, _of_versions, is_harmless=True)


def _unlike_most(
    key: str,
    installed: Sequence[tuple[str, Versions]],
    compared_as: Callable[[str, Versions], str | None],
    *,
    is_harmless: bool,
) -> list[Divergence]:
    compared = [
        (name, versions, value)
        for name, versions in installed
        for value in [compared_as(key, versions)]
        if value is not None or key not in GPU_KEYS
    ]
    counts = Counter(value for *_, value in compared).most_common(2)
    if len(counts) < 2:
        return []
    has_majority = counts[0][1] > counts[1][1]
    usual = counts[0][0] if has_majority else None
    majority = usual or (ABSENT if has_majority else None)
    if usual is not None and key in PATCH_MAY_DIFFER:
        # A version that can be installed is named, not only its beginning.
        like = (_of_versions(key, versions) for _, versions, value in compared if value == usual)
        majority = Counter(like).most_common(1)[0][0]
    return [
        Divergence(
            node=name,
            key=key,
            value=_of_versions(key, versions),
            majority=majority,
            is_harmless=is_harmless,
        )
        for name, versions, value in compared
        if not (has_majority and value == usual)
    ]


def _comparable(key: str, versions: Versions) -> str | None:
    value = _of_versions(key, versions)
    if key in ("python", "cuda", "transformers") and value is not None:
        return ".".join(value.split(".")[:2])
    if key == "torch" and value is not None:
        value = _BUILD.sub("", value)
        return value.removesuffix(_CPU_BUILD) if versions.driver is None else value
    return value


def _of_versions(key: str, versions: Versions) -> str | None:
    value: str | None = getattr(versions, key)
    return value
