"""Hugging Face names: parses ``org/name@revision``, and finds its copy on nodes and in this
machine's cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from jupyter_mntrain.launch.files.names import LargeName, is_large_name, parse_large_name
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home

ROOT: Final = "models"
"""The root of the nodes that has the copies; every node has it."""

DEFAULT_REVISION: Final = "main"

# https://huggingface.co/docs/huggingface_hub: no "--" and no ".." in the name of a repository;
# git: no ".." in that of a branch or tag.
_PART = r"[A-Za-z0-9_](?:(?!--|\.\.)[\w.-]){0,95}"
_ID: Final = re.compile(
    rf"(?P<repo>{_PART}/{_PART})(?:@(?P<revision>\w(?:(?!\.\.)[\w./-]){{0,199}}))?", re.ASCII
)
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SEPARATOR: Final = "--"
_YES: Final = frozenset({"1", "on", "yes", "true"})


class HubId(NamedTuple):
    """A model of the hub: ``org/name``, and a branch, tag or commit."""

    repo: str
    revision: str = DEFAULT_REVISION

    def __str__(self) -> str:
        given = "" if self.revision == DEFAULT_REVISION else f"@{self.revision}"
        return f"{self.repo}{given}"

    @property
    def copy(self) -> LargeName:
        """The name of a commit's copy on all nodes."""
        return LargeName(ROOT, f"{self.repo.replace('/', _SEPARATOR)}@{self.revision}")


def hub_id(text: str | None) -> HubId | None:
    """Parse the hub id of a recipe's model; ``None`` if it cannot be one.

    A folder may be called so, too: who knows the folder that the recipe is in looks there first.
    """
    found = _ID.fullmatch(text or "")
    return None if found is None else HubId(found["repo"], found["revision"] or DEFAULT_REVISION)


def hub_copy(text: str | None) -> HubId | None:
    """Return the model and commit of a copy's name like ``models:org--name@COMMIT``, if
    it is one.
    """
    if text is None or not is_large_name(text):
        return None
    try:
        name = parse_large_name(text)
    except SpecError:
        return None
    repo, _, commit = name.name.partition("@")
    if name.root != ROOT or _COMMIT.fullmatch(commit) is None:
        return None
    found = hub_id(f"{repo.replace(_SEPARATOR, '/', 1)}@{commit}")
    return found if found is not None and found.copy == name else None


def is_set(environment: Mapping[str, str], name: str) -> bool:
    """Whether a variable is set to what Hugging Face's libraries read as true."""
    return environment.get(name, "").lower() in _YES


def hub_home(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in which Hugging Face's libraries store files."""
    if named := environment.get("HF_HOME"):
        return in_home(named)
    usual = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return in_home(usual) / "huggingface"


def hub_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of downloads from the hub."""
    return in_home(environment.get("HF_HUB_CACHE") or hub_home(environment) / "hub")


def folder_in_cache(repo: str, kind: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return a repository's folder in the cache; ``kind`` is ``models`` or ``datasets``."""
    return hub_cache(environment) / f"{kind}--{repo.replace('/', _SEPARATOR)}"


def snapshot(model: HubId) -> Path | None:
    """Return the folder of a model in this machine's cache, perhaps incomplete; ``None`` without
    one.
    """
    folder, commit = folder_in_cache(model.repo, "models"), model.revision
    if _COMMIT.fullmatch(commit) is None:
        try:
            commit = (folder / "refs" / commit).read_text().strip()
        except (OSError, ValueError):
            return None
        if _COMMIT.fullmatch(commit) is None:
            return None
    found = folder / "snapshots" / commit
    return found if found.is_dir() else None
