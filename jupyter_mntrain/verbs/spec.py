"""From what a person names, a recipe or a script, to a job spec; checked before anything starts."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from pathlib import Path

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.job import JobSpec, Participant
from jupyter_mntrain.train.recipe import check, parse_recipe
from jupyter_mntrain.verbs.verb import Context

RECIPE_FILE = "recipe.toml"
CELL_SCRIPT = "cell.py"
MAX_FILE_BYTES = 1 << 20
"""Files travel inside the spec, to every node and into every record: scripts, not data."""


class Source:
    """What is to run, as text: a recipe or a script."""

    def __init__(self, name: str, text: str, *, is_recipe: bool) -> None:
        self.name = name
        self.text = text
        self.is_recipe = is_recipe


def read_source(context: Context, target: str | None) -> Source:
    """The recipe or script of a launch, from a file or from the cell.

    Raises:
        SpecError: neither or both are there, the file is missing, or it does not parse.
    """
    if context.cell is not None:
        if target is not None:
            raise SpecError(f"both {target} and a cell body are given", fix="launch one of the two")
        return _from_cell(context.cell)
    if target is None:
        raise SpecError(
            "there is nothing to launch",
            fix="name a recipe (.toml) or a script (.py), or use %%mntrain launch with it in the cell",
        )
    path = context.directory / Path(target).expanduser()
    text = _read(path, target)
    if path.suffix == ".toml":
        return Source(path.stem, text, is_recipe=True)
    if path.suffix != ".py":
        raise SpecError(
            f"{target} is neither a recipe (.toml) nor a Python script (.py)",
            fix="give it the right ending",
        )
    _refuse_syntax_errors(text, target)
    return Source(path.name, text, is_recipe=False)


def build_spec(context: Context, arguments: argparse.Namespace, source: Source) -> JobSpec:
    """The whole spec: participants chosen, recipe checked against their number of ranks.

    Raises:
        SpecError: unknown node, too many GPUs, an option out of form.
        RecipeError: a field is misspelt, out of range, or does not fit the number of ranks.
    """
    participants = _participants(context, arguments)
    world_size = sum(participant.nproc for participant in participants)
    files = {name: text for name, text in (_extra(context, path) for path in arguments.file)}
    if source.is_recipe:
        check(parse_recipe(source.text, arguments.set, name=source.name), world_size)
        files[RECIPE_FILE] = source.text
        overrides = [word for item in arguments.set for word in ("--set", item)]
        entry = ("-m", "jupyter_mntrain.train", RECIPE_FILE, *overrides)
    else:
        if arguments.set:
            raise SpecError(
                "--set changes fields of a recipe, and this is a script",
                fix="pass the script's own arguments behind --",
            )
        files[source.name] = source.text
        entry = (source.name, *arguments.script_arguments)
    return JobSpec(
        entry=entry,
        participants=participants,
        name=arguments.name or Path(source.name).stem,
        files=files,
        environment=dict(_pair(item) for item in arguments.env),
        torchrun_arguments=tuple(arguments.torchrun),
        port=arguments.port,
        link_capacity_bytes_per_s=_capacity(arguments.link_capacity),
    )


def _participants(context: Context, arguments: argparse.Namespace) -> tuple[Participant, ...]:
    chosen = context.cluster.participants(arguments.member)
    if arguments.head is None:
        return chosen
    head = [participant for participant in chosen if participant.node == arguments.head]
    if not head:
        names = ", ".join(participant.node for participant in chosen)
        raise SpecError(
            f"the head {arguments.head!r} is not a participant", fix=f"choose one of {names}"
        )
    return (*head, *(participant for participant in chosen if participant not in head))


def _from_cell(body: str) -> Source:
    """A recipe if it is TOML, a script if it is Python; else what is wrong with the nearer one."""
    if not body.strip():
        raise SpecError("the cell is empty", fix="write a recipe (TOML) or a training script in it")
    try:
        tomllib.loads(body)
    except tomllib.TOMLDecodeError as error:
        if body.lstrip().startswith("["):
            raise SpecError(f"the recipe in the cell is not valid TOML: {error}") from None
        _refuse_syntax_errors(body, "the cell")
        return Source(CELL_SCRIPT, body, is_recipe=False)
    return Source("cell", body, is_recipe=True)


def _refuse_syntax_errors(text: str, name: str) -> None:
    try:
        compile(text, name, "exec")
    except SyntaxError as error:
        raise SpecError(
            f"{name}, line {error.lineno}: {error.msg}", fix="mend the script"
        ) from None
    except ValueError as error:
        raise SpecError(f"{name} is not Python: {error}", fix="mend the script") from None


def _read(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise SpecError(
                f"{shown} is larger than 1 MiB", fix="put data on the nodes and name its path"
            )
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"there is no {path}", fix="check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{shown} cannot be read: {error}", fix="check the path") from None


def _extra(context: Context, path: str) -> tuple[str, str]:
    relative = Path(path)
    if relative.is_absolute() or ".." in relative.parts:
        raise SpecError(
            f"--file {path} is not below {context.directory}", fix="use a relative path"
        )
    return str(relative), _read(context.directory / relative, path)


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not (name and equals):
        raise SpecError(f"--env {item!r} is not NAME=VALUE", fix="write --env NAME=VALUE")
    return name, value


def _capacity(text: str | None) -> float | None:
    """``1gbit`` → bytes per second."""
    from jupyter_mntrain.plan.rates import parse_bit_rate

    return None if text is None else parse_bit_rate(text)


def member_names(members: Sequence[str]) -> list[str]:
    """The nodes that ``--member`` options name."""
    return [member.partition(":")[0] for member in members]
