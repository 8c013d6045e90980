"""Fitting: whether a checkpoint is one that a run can go on from."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.records.checkpoint import Manifest
from jupyter_mntrain.recipe.parts.adapters import AdaptersSection
from jupyter_mntrain.train.checkpoint.beginning import Beginning

_BASE = "base weights"
COMPARED = ("model", "batches", _BASE)
"""Digests that must be unchanged for a resumed run to continue with the same losses."""

_OF_ADAPTERS = ("rank", "alpha", "modules", "train_whole")
"""Settings of adapters that a resumed run keeps."""

_OTHER = {
    "model": "another model",
    "batches": "different data or batches",
    _BASE: "adapters of other weights",
}


def refuse_other(begin: Beginning, digests: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another model, data or base.

    Raises:
        RecipeError: naming what is another one.
    """
    manifest = begin.found.manifest
    for name in COMPARED:
        before, now = manifest.digests.get(name), digests.get(name)
        if before != now:
            what = _OTHER[name]
            if name == _BASE and before is None:
                what = "no adapters: all weights were trained"
            elif name == _BASE and now is None:
                what = "adapters"
            raise RecipeError(
                f"checkpoint {manifest.step} in {begin.directory.path} was made with {what}",
                fix="set another checkpoint.directory, or use the recipe it was made with",
            )


def refuse_other_adapters(begin: Beginning, section: AdaptersSection) -> None:
    """Refuse a checkpoint whose adapters are not these: some would be lost, or count otherwise.

    Raises:
        RecipeError: naming the setting.
    """
    manifest = begin.found.manifest
    if manifest.recipe is None:
        return
    before, now = (
        manifest.recipe.get("adapters", {}),
        msgspec.json.decode(msgspec.json.encode(section)),
    )
    for name in _OF_ADAPTERS:
        if before.get(name) != now.get(name):
            told = f"adapters.{name} = {before[name]}" if name in before else f"no adapters.{name}"
            raise RecipeError(
                f"checkpoint {manifest.step} in {begin.directory.path} was made with {told}",
                fix="use the recipe it was made with; or export it, and train that model",
            )


def refuse_apart(begin: Beginning, replicas: int) -> None:
    """Refuse a checkpoint of replicas with weights of their own, if there shall be several that
    have the same.

    Args:
        replicas: that sum gradients in every step; 0 if they meet rarely.

    Raises:
        RecipeError: as told.
    """
    manifest = begin.found.manifest
    if (saved := replicas_apart(manifest)) and replicas > 1:
        cause = f"checkpoint {manifest.step} in {begin.directory.path} was made by {saved} "
        cause += "replicas that meet rarely, each with weights of its own"
        fix = "set data_parallel.sync_every, as they had it, or train a single replica"
        raise RecipeError(cause, fix=fix)


def replicas_apart(manifest: Manifest) -> int:
    """Replicas whose own weights a checkpoint has; 0 if all had the same."""
    section = (manifest.recipe or {}).get("data_parallel", {})
    return int(section.get("replicas", 1)) if section.get("sync_every") else 0
