"""Comparison of jobs: finds the settings that differ between them. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from jupyter_mntrain.launch.settings import settings_of_job
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.setting import DifferentSetting, Setting, SettingsComparison
from jupyter_mntrain.model.text.secrets import shown, shown_words

DIGEST = 12
"""Characters of a SHA-256 that are shown to distinguish contents."""

NAME = "launch.name"
"""What a job is called is not what it does."""


def compared_settings(spec: JobSpec) -> tuple[Setting, ...]:
    """Return a job's settings for a comparison: also its nodes in node-rank order, its program, its
    variables and the contents of its files.

    Raises:
        RecipeError: its recipe is not valid.
    """
    places = (
        ":".join((one.node, str(one.nproc), *([one.interface] if one.interface else ())))
        for one in spec.participants
    )
    nodes = Setting(name="launch.nodes", value=", ".join(places), origin="option")
    return (*settings_of_job(spec), nodes, *_launched(spec))


def _launched(spec: JobSpec) -> Iterator[Setting]:
    """Yield what is not in a recipe: a script's arguments, variables, and files by
    their content.
    """
    program = program_of(spec)
    if program.is_script:
        words = " ".join(shown_words(spec.entry))
        yield Setting(name="launch.program", value=words, origin="option")
    for name, value in shown(spec.environment, spec.from_environment).items():
        yield Setting(name=f"launch.env.{name}", value=value, origin="option")
    files = {name: text for name, text in spec.files.items() if name not in program.own_files}
    for name, text in sorted(files.items()):
        yield Setting(name=f"launch.files.{name}", value=_digest(text), origin="option")
    for name in ("project", "workdir"):
        if (value := getattr(spec, name)) is not None:
            yield Setting(name=f"launch.{name}", value=value[:DIGEST], origin="option")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]


def compare_settings(jobs: Sequence[Sequence[Setting]]) -> SettingsComparison:
    """Compare the values in effect: a default equals the same value given by ``--set``."""
    by_name = [{one.name: one for one in settings} for settings in jobs]
    names = [name for name in dict.fromkeys(n for one in by_name for n in one) if name != NAME]
    found = [DifferentSetting(name, tuple(one.get(name) for one in by_name)) for name in names]
    differing = tuple(one for one in found if not _is_same(one.values))
    different = {one.name for one in differing}
    return SettingsComparison(differing, tuple(name for name in names if name not in different))


def _is_same(values: Sequence[Setting | None]) -> bool:
    effects: list[Any] = [one if one is None else (one.in_effect,) for one in values]
    return all(one == effects[0] for one in effects)
