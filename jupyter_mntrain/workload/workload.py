"""Workload: a recipe for the default trainer, or a training script.

Both are checked before any node is asked: a recipe field by field, a script by compiling it.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import tokenize
import tomllib
import warnings
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from jupyter_mntrain.launch.files.hub_names import hub_copy, hub_id
from jupyter_mntrain.launch.files.names import is_large_name
from jupyter_mntrain.launch.settings import setting_of
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.lifecycle.running_changes import SET
from jupyter_mntrain.model.records.job import PYTHON, TRAINER, JobSpec, SetIn
from jupyter_mntrain.model.records.setting import Setting
from jupyter_mntrain.model.text.spelling import use_nearest
from jupyter_mntrain.model.whereabouts import current_folder, in_home
from jupyter_mntrain.recipe.builtin import BUILT_IN, BuiltIn
from jupyter_mntrain.recipe.changes.settings import settings_of_recipe
from jupyter_mntrain.recipe.parse import TOML_FIX, check, parse_recipe
from jupyter_mntrain.recipe.sections import PYTHON_LIBRARY, Recipe
from jupyter_mntrain.recipe.stored import RECIPE_FILE, overrides_of

CELL_SCRIPT = "cell.py"
SHELL_SCRIPTS = (".sh", ".bash")
_SHEBANG = re.compile(r"#!.*")
_DECLARED = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")
"""A script's encoding, in one of its first two lines: PEP 263."""


class Workload(Record, frozen=True):
    """What every rank runs, and the files that are sent with it.

    Args:
        took: what it was recognized as, for people.
        recipe: checked; ``None`` for a script.
        set_in: where its settings were chosen, if not by ``--set``.
    """

    entry: tuple[str, ...]
    files: dict[str, str]
    name: str
    took: str
    recipe: Recipe | None = None
    set_in: dict[str, SetIn] = {}

    def settings(self) -> tuple[Setting, ...]:
        """All settings of the recipe, with where each comes from; empty for a script."""
        overrides = self.entry[4::2]
        if self.recipe is None:
            return ()
        return settings_of_recipe(self.files[RECIPE_FILE], overrides, set_in=self.set_in)

    def check(self, world_size: int) -> None:
        """Refuse a recipe that cannot run on ``world_size`` ranks.

        Raises:
            RecipeError: naming the field and the nearest value that works.
        """
        if self.recipe is not None:
            check(self.recipe, world_size)


def from_path(
    path: Path, *, arguments: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Workload:
    """Read a recipe (``.toml``), or a Python script with any extension.

    Raises:
        SpecError: it does not exist, cannot be read, is none, or does not compile; with the line
            number.
        RecipeError: a field of the recipe is wrong.
    """
    text = read_text(path, known=[one.name for one in BUILT_IN])
    if path.suffix == ".toml":
        _refuse_arguments(arguments)
        return _recipe(text, overrides, name=path.name, directory=path.parent, job=path.stem)
    if not _is_python(path.name, text):
        raise _not_python(path.name, text)
    return _script(text, path.name, arguments, overrides, took=f"script {path.name}")


def _is_python(name: str, text: str) -> bool:
    """Whether a text is a Python script, judged by its name, its first line, or its imports."""
    if name.endswith(PYTHON):
        return True
    if shebang := _SHEBANG.match(text):
        return "python" in shebang[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    # JSON, tables and much of YAML are valid Python, too.
    return any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(tree))


def _not_python(name: str, text: str) -> SpecError:
    """Return the error for a file that is neither a recipe nor a Python script."""
    if name.endswith(".ipynb"):
        return SpecError(
            f"{name}: a notebook, which ranks cannot run",
            fix=f"write its cells into a script: jupyter nbconvert --to script {name}; or launch "
            "one of its cells: %%mntrain launch",
            kind=Kind.BAD_COMMAND,
        )
    is_program = _SHEBANG.match(text) or name.endswith(SHELL_SCRIPTS)
    what = "a program, not a Python script" if is_program else "neither a recipe nor a script"
    return SpecError(
        f"{name}: {what}",
        fix=f"if every rank should run it: --torchrun=--no-python {shlex.quote(name)}; else name "
        "the Python script that it starts"
        if is_program
        else "name a recipe (.toml) or a Python script; what ranks run without Python is "
        "launched with --torchrun=--no-python",
        kind=Kind.BAD_COMMAND,
    )


def from_program(path: Path | None, name: str, arguments: Sequence[str] = ()) -> Workload:
    """Make a workload of a program that every rank runs directly (torchrun's ``--no-python``).

    Args:
        path: where it is here; ``None`` if it is one of the nodes.
        name: what it is called on the nodes: with a ``/``, or on their ``PATH``.

    Raises:
        SpecError: it cannot be run.
    """
    if path is not None:
        _refuse_unrunnable(path)
    stem = PurePosixPath(name).stem or name
    return Workload(entry=(name, *arguments), files={}, name=stem, took=f"program {name}")


def _refuse_unrunnable(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begin = file.read(1024)
    except OSError:
        read_text(path, "program")  # says what is wrong with it
        raise
    if not os.access(path, os.X_OK):
        raise SpecError(
            f"{path.name}: may not be executed, as --no-python does",
            fix=f"allow it: chmod +x {shlex.quote(path.name)}",
        )
    if not begin.startswith(b"#!") and b"\0" not in begin:
        raise SpecError(
            f"{path.name}: has no first line that says what runs it",
            fix="begin it with a line like #!/bin/bash or #!/usr/bin/env python3",
        )


def from_built_in(
    ours: BuiltIn, *, arguments: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Workload:
    """Make a workload of a built-in recipe."""
    _refuse_arguments(arguments)
    return _recipe(ours.text, overrides, name=ours.name, directory=current_folder(), job=ours.name)


def from_cell(
    text: str, *, directory: Path, arguments: Sequence[str] = (), overrides: Sequence[str] = ()
) -> Workload:
    """Read a recipe or a script from a cell, by parsing it as TOML, then as Python.

    Line numbers in errors count the magic as the cell's first line.

    Raises:
        SpecError: it is neither; the reason is that of the more likely one.
        RecipeError: a field of the recipe is wrong.
    """
    text = text.removeprefix("\ufeff")  # pasted
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        raise SpecError(
            "the cell is empty", fix="put a recipe (TOML) or a Python training script below"
        )
    source = "\n" + text
    try:
        tomllib.loads(source)
    except tomllib.TOMLDecodeError as toml_error:
        if _begins_with_table(text):  # [model] is Python, too, but of no use there
            raise _not_toml(toml_error) from None
        try:
            compile_script(source, "cell")
        except SpecError as python_error:
            raise _neither(text, toml_error, python_error) from None
        return _script(
            text, CELL_SCRIPT, arguments, overrides, took="the Python script in the cell"
        )
    _refuse_arguments(arguments)
    return _recipe(source, overrides, name="cell", directory=directory, job=None)


def from_spec(
    spec: JobSpec,
    *,
    took: str,
    directory: Path,
    arguments: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Workload:
    """Make a workload of a stored job, with changes.

    Args:
        arguments: replace those of its script.
        overrides: added to those of its recipe, and win.

    Raises:
        SpecError: it does not compile, or is not a recipe and overrides were given.
        RecipeError: a field of the recipe is wrong.
    """
    before = overrides_of(spec)
    if before is not None:
        _refuse_arguments(arguments)
        every, recipe = [*before, *overrides], spec.files[RECIPE_FILE]
        made = _recipe(recipe, every, name=RECIPE_FILE, directory=directory, job=spec.name)
        changed = {setting_of(override) for override in overrides}
        kept = {name: where for name, where in spec.set_in.items() if name not in changed}
        return msgspec.structs.replace(
            made, files=spec.files, name=spec.name, took=took, set_in={**made.set_in, **kept}
        )
    if overrides:
        raise SpecError(
            f"--set {overrides[0]}: this job runs {' '.join(spec.entry[:2])}, not a recipe",
            fix="pass its arguments after --",
        )
    program = spec.entry[: 2 if spec.entry[:1] == ("-m",) else 1]
    for script in program:
        if script in spec.files:
            compile_script(spec.files[script], script)
    entry = (*program, *arguments) if arguments else spec.entry
    return Workload(
        entry=entry, files=spec.files, name=spec.name, took=took, set_in=dict(spec.set_in)
    )


def compile_script(source: str, name: str) -> None:
    """Raise :class:`SpecError` with the line number if ``source`` is not valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they appear when the script runs
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        said = f": {error.text.strip()}" if error.text and error.text.strip() else ""
        raise SpecError(
            f"{name}{where}: {error.msg}{said}",
            kind=Kind.EXCEPTION,
            fix="correct that line; nothing was started",
        ) from None
    except ValueError as error:  # null bytes
        raise SpecError(f"{name}: {error}", fix="save it as plain text") from None


def read_text(path: Path, what: str = "recipe or script", *, known: Sequence[str] = ()) -> str:
    """Read the text of a file.

    Args:
        what: what the file should be, for people.
        known: names that could have been meant, besides the files next to it.

    Raises:
        SpecError: it cannot be read.
    """
    try:
        place = in_home(path)
        return place.read_text("utf-8-sig") if path.suffix == ".toml" else _script_text(place)
    except FileNotFoundError:
        fix = use_nearest(path.name, [*_neighbors(path), *known], "check the path")
        raise SpecError(f"{path}: no such {what}", fix=fix) from None
    except IsADirectoryError:
        fix = f"name a {what} in it"
        if (path / "__main__.py").is_file():
            fix = f"launch what is in it: {path.name}/__main__.py"
        raise SpecError(f"{path}: is a directory", fix=fix) from None
    except (UnicodeDecodeError, SyntaxError):
        is_program = b"\0" in in_home(path).read_bytes()[:1024]
        raise SpecError(
            f"{path}: is {'a program' if is_program else 'not UTF-8 text'}",
            fix="if every rank should run it, add --torchrun=--no-python"
            if is_program
            else "save it as UTF-8",
        ) from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}", fix="check the path") from None


def _script_text(path: Path) -> str:
    """Return a script's text, decoded as Python does, by the encoding that it declares.

    What is sent is UTF-8, so the declaration (PEP 263) is made to say that.

    Raises:
        UnicodeDecodeError: it is in another encoding.
        SyntaxError: it declares one that Python does not know, or another than its mark's.
    """
    with tokenize.open(path) as file:
        text, encoding = file.read(), file.encoding
    if encoding in ("utf-8", "utf-8-sig"):
        return text
    lines = text.split("\n", 2)
    lines[:2] = (_DECLARED.sub(r"\g<1>utf-8", line) for line in lines[:2])
    return "\n".join(lines)


def _neighbors(path: Path) -> list[str]:
    try:
        there = in_home(path).parent.iterdir()
        return [one.name for one in there if one.suffix in {*PYTHON, ".toml"}]
    except OSError:
        return []


def _recipe(
    text: str, overrides: Sequence[str], *, name: str, directory: Path, job: str | None
) -> Workload:
    recipe = parse_recipe(text, overrides, name=name)
    chosen = set(map(setting_of, overrides))
    spelled_out = _absolute(recipe, directory)
    every = [*overrides, *spelled_out]
    recipe = parse_recipe(text, every, name=name)
    path = recipe.model.path
    of_hub = hub_copy(path) or hub_id(path)
    model = Path(of_hub.repo if of_hub else path).name if path else recipe.model.preset
    return Workload(
        entry=("-m", TRAINER, RECIPE_FILE, *(word for one in every for word in (SET, one))),
        files={RECIPE_FILE: text},
        name=job or model or "recipe",
        took="the recipe in the cell" if name == "cell" else f"recipe {name}",
        recipe=recipe,
        set_in=dict.fromkeys(set(map(setting_of, spelled_out)) - chosen, "recipe"),
    )


def _absolute(recipe: Recipe, directory: Path) -> list[str]:
    """Return overrides that make relative paths absolute, as ranks run in another directory."""

    def placed(given: str | None) -> str | None:
        # ~ is the home of the agent's user: the trainer expands it on the node. And each node has
        # its own place for models:llama.
        if given in (None, PYTHON_LIBRARY) or given.startswith(("/", "~")) or is_large_name(given):
            return None
        return str((directory / given).resolve())

    model = recipe.model.path
    if hub_id(model) and not (directory / str(model)).exists():
        model = None  # a launch fetches it
    paths = {
        "model.path": model,
        "data.source": recipe.data.source,
        "data.evaluation_path": recipe.data.evaluation_path,
        "data.chat_template": recipe.data.chat_template,
        "output.directory": recipe.output.directory,
    }
    found = [
        f"{field}={json.dumps(path)}"
        for field, given in paths.items()
        if (path := placed(given)) is not None
    ]
    sources = recipe.data.sources
    if any(placed(one.path) for one in sources):
        tables = (
            f"{{path = {json.dumps(placed(one.path) or one.path)}, weight = {one.weight!r}}}"
            for one in sources
        )
        found.append(f"data.sources=[{', '.join(tables)}]")
    return found


def _script(
    text: str, name: str, arguments: Sequence[str], overrides: Sequence[str], *, took: str
) -> Workload:
    if overrides:
        raise SpecError(
            f"--set {overrides[0]}: {name} is a script and has no recipe fields",
            fix="pass its arguments after --",
        )
    if name != CELL_SCRIPT:
        compile_script(text, name)
    stem = name.rpartition(".")[0] or name
    return Workload(entry=(name, *arguments), files={name: text}, name=stem, took=took)


def _refuse_arguments(arguments: Sequence[str]) -> None:
    if arguments:
        raise SpecError(
            f"{arguments[0]!r} is given after --, but a recipe takes no arguments",
            fix="change a recipe with --set section.field=value",
        )


_TABLE_LINE = re.compile(r"^\s*\[[\w.]+\]\s*$", re.MULTILINE)
_PYTHON_LINE = re.compile(r"^\s*(import|from|def|class|with|for|while|if)\b|\w\(", re.MULTILINE)


def _neither(text: str, toml: tomllib.TOMLDecodeError, python: SpecError) -> SpecError:
    """Return the error of the kind that the cell resembles more; a ``[section]`` means a recipe."""
    if _PYTHON_LINE.search(text) and not _TABLE_LINE.search(text):
        return SpecError(f"read as a Python script: {python.cause}", fix=python.fix)
    return _not_toml(toml)


def _begins_with_table(text: str) -> bool:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return _TABLE_LINE.match(next(filter(None, lines), "")) is not None


def _not_toml(error: tomllib.TOMLDecodeError) -> SpecError:
    return SpecError(f"read as a recipe: cell: {_toml_words(error)}", fix=TOML_FIX)


def _toml_words(error: tomllib.TOMLDecodeError) -> str:
    """Reword ``Invalid value (at line 3, column 5)`` as ``line 3: Invalid value``."""
    match = re.fullmatch(r"(?P<what>.*) \(at line (?P<line>\d+), column \d+\)", str(error))
    return f"line {match['line']}: {match['what']}" if match else str(error)
