"""Panel targets: finds recipes in the directory, presets, and named scripts."""

from __future__ import annotations

import shlex
import tomllib
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.families.presets import DEFAULT_PRESET, PRESETS
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.sections import Recipe
from jupyter_mntrain.recipe.stored import overrides_of
from jupyter_mntrain.verbs.panel.last_choices import MOST_RECIPES, Memory
from jupyter_mntrain.verbs.verb import Context
from jupyter_mntrain.workload.workload import Workload, from_cell, from_path, from_spec

LARGEST_RECIPE_BYTES = 64 * 2**10
"""Size above which a .toml file is not read as a recipe: a recipe has a few hundred bytes."""
_SECTIONS = {field.name for field in msgspec.structs.fields(Recipe)}


class Target(Record, frozen=True):
    """Something to launch: a file, a built-in preset, or an ended job.

    Args:
        path: as users type it; ``None`` = a preset or a job.
        job: to resume or to start over.
        spec: of that job.
    """

    directory: Path
    path: str | None = None
    preset: str | None = None
    job: JobId | None = None
    spec: JobSpec | None = None

    @property
    def key(self) -> str:
        """The key under which its choices are stored."""
        if self.job is not None:
            return f"job:{self.job}"
        if self.path is None:
            return f"preset:{self.preset}"
        return str((self.directory / in_home(self.path)).resolve())

    @property
    def is_script(self) -> bool:
        """Whether it is a script, which has no recipe fields."""
        if self.spec is not None:
            return overrides_of(self.spec) is None
        return self.path is not None and not self.path.endswith(".toml")

    @property
    def brings_files(self) -> bool:
        """Whether it can have its own files, folder and interpreter: a recipe cannot."""
        return self.is_script or self.spec is not None

    @property
    def label(self) -> str:
        if self.spec is not None:
            return f"{self.spec.name} ({self.job})"
        return self.path or f"preset {self.preset}"

    @property
    def cell(self) -> str | None:
        """The text of a preset; ``None`` for a file or a job."""
        return None if self.preset is None else f'[model]\npreset = "{self.preset}"\n'

    def workload(self, overrides: Sequence[str], arguments: Sequence[str]) -> Workload:
        """Read and check the target.

        Raises:
            SpecError, RecipeError: as for :func:`from_path`.
        """
        if self.cell is not None:
            return from_cell(
                self.cell, directory=self.directory, arguments=arguments, overrides=overrides
            )
        if self.spec is not None:
            return from_spec(
                self.spec,
                took=f"job {self.job} again",
                directory=self.directory,
                arguments=arguments,
                overrides=overrides,
            )
        path = self.directory / in_home(self.path or "")
        return from_path(path, arguments=arguments, overrides=overrides)


def find_target(directory: Path, text: str) -> Target:
    """Find a target by name: a file, else a preset.

    Raises:
        SpecError: it is neither.
    """
    path = directory / in_home(text)
    if path.exists():
        return Target(directory=directory, path=text)
    if text in PRESETS:
        return Target(directory=directory, preset=text)
    known = [*PRESETS, *(one.label for one in recipes(directory))]
    fix = use_nearest(text, known, "name a recipe or a preset")
    raise SpecError(f"{text}: no such recipe, script or preset", fix=fix)


def all_targets(directory: Path) -> list[Target]:
    """Return the recipes in the directory, then the presets, the default one first."""
    names = sorted(PRESETS, key=lambda name: (name != DEFAULT_PRESET, list(PRESETS).index(name)))
    return [*recipes(directory), *(Target(directory=directory, preset=name) for name in names)]


def launched_last(targets: Sequence[Target], memory: Memory) -> Target:
    """Return the target that was launched last; the first one if that is not known."""
    try:
        launched = list(memory.all())
    except MntrainError:
        launched = []
    by_key = {target.key: target for target in targets}
    return next((by_key[key] for key in launched if key in by_key), targets[0])


def recipes(directory: Path) -> list[Target]:
    """Return the ``.toml`` files that have only sections of a recipe."""
    try:
        paths = sorted(directory.glob("*.toml"))
    except OSError:
        return []
    found = [path for path in paths if _is_recipe(path)]
    return [Target(directory=directory, path=path.name) for path in found[:MOST_RECIPES]]


def _is_recipe(path: Path) -> bool:
    try:
        if path.stat().st_size > LARGEST_RECIPE_BYTES:
            return False
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
    return bool(content) and content.keys() <= _SECTIONS


def command_text(
    context: Context, args: Namespace, target: Target, words: Sequence[str], resumes: JobId | None
) -> str:
    """Return a command that launches, or resumes an ended job, as it is typed.

    Args:
        args: of the panel: its cluster.
        words: after the verb.
    """
    cluster = ["--cluster", args.cluster] if args.cluster else []
    cluster += [word for one in args.agent or () for word in ("--agent", one)]
    magic = shlex.join([context.program, *([] if "--on" in words else cluster)])
    given = f" -- {shlex.join(context.arguments)}" if context.arguments else ""
    line, cell = shlex.join(words), target.cell
    if resumes is not None:
        return f"{magic} resume {line}{given}"
    if cell is None:
        return f"{magic} launch {line}{given}"
    if magic.startswith("%"):
        return f"%{magic} launch {line}\n{cell}"
    file = f"{target.preset}.toml"
    return f"printf {shlex.quote(cell)} > {file}\n{magic} launch {file} {line}"
