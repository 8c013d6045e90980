"""Other launchers: what a user means who writes ``torchrun …`` after ``launch``. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import NO_PYTHON, PYTHON

_PYTHON: Final = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_LAUNCHERS: Final = frozenset(
    {"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun", "composer"}
)
_PROGRAMS: Final = {
    "llamafactory-cli train": "llamafactory.launcher",
    "axolotl train": "axolotl.cli.train",
    "litgpt": "litgpt",
}
"""Programs that start ranks themselves, and the module that each rank runs."""
_OWN_STARTERS: Final = frozenset({"tune", "yolo", "lightning", "fabric", "torchx", "ray"})
"""Programs that start ranks themselves; their arguments determine the module."""
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "fish"})
_PROGRAM: Final = "--torchrun=--no-python"
_MODULES: Final = ("torch.distributed.", "accelerate.", "deepspeed.")
_PROCESSES: Final = re.compile(
    r"--(nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus|ntasks-per-node)|-np|-n|--nproc"
)

_OF_TORCHRUN: Final = re.compile(r"--(nproc([-_]per[-_]node)?|num[-_](processes|gpus)|nnodes)")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


class Meant(NamedTuple):
    """What a line of another launcher runs.

    Args:
        processes: on each node; empty if it was not said.
        is_module: whether the target is one, by its name.
        is_program: whether it is a program that ranks run by itself.
    """

    launcher: str
    target: str = ""
    arguments: tuple[str, ...] = ()
    processes: str = ""
    is_module: bool = False
    is_program: bool = False


def refuse_other_launcher(words: Sequence[str], arguments: Sequence[str], program: str) -> None:
    """Refuse a line that begins with the name of another launcher; say how to write it here.

    Args:
        words: after the verb.
        arguments: after ``--``.

    Raises:
        SpecError: they do.
    """
    meant = meant_by([*words, *arguments])
    if meant is None and {f"--torchrun={one}" for one in NO_PYTHON} & {*words}:
        return
    _refuse_program([one for one in (*words, *arguments) if one != "--"], program)
    if meant is None:
        _refuse_torchruns(words, program)
        return
    target = meant.target or "SCRIPT.py"
    line = [program, "launch"]
    line += ["--module"] if meant.is_module else []
    line += [_PROGRAM] if meant.is_program else []
    line.append(target)
    if meant.arguments:
        line += ["--", *meant.arguments]
    number = f", with --member HOST:{meant.processes} for each node" * bool(meant.processes)
    raise SpecError(
        f"{meant.launcher}: launch starts torchrun itself, on every node",
        fix=f"{shlex.join(line)}{number}",
        kind=Kind.BAD_COMMAND,
    )


def _refuse_torchruns(words: Sequence[str], program: str) -> None:
    """Raise SpecError if the words have options of torchrun."""
    for at, word in enumerate(words):
        name, is_joined, value = word.partition("=")
        if name in NO_PYTHON:
            raise SpecError(
                f"{name} is torchrun's",
                fix=shlex.join([program, "launch", *words[:at], _PROGRAM, *words[at + 1 :]]),
                kind=Kind.BAD_COMMAND,
            )
        if not _OF_TORCHRUN.fullmatch(name):
            continue
        value = value if is_joined else next(iter(words[at + 1 :]), "")
        number = value if value.isdigit() and not name.startswith("--nn") else "N"
        raise SpecError(
            f"{name} is torchrun's: launch gets its nodes and their processes from --member",
            fix=f"use --member HOST:{number} for each node",
            kind=Kind.BAD_COMMAND,
        )
    option, module, *rest = (*words, "", "")
    has_target = any(one.endswith((*PYTHON, ".toml")) or one == "--module" for one in rest)
    if option == "-m" and _MODULE.fullmatch(module) and not has_target and program[:1] != "%":
        rest = [one for one in rest if one]
        raise SpecError(
            f"-m {module} names a node (--member), not a module",
            fix=shlex.join(
                [program, "launch", "--module", module, *(("--", *rest) if rest else ())]
            ),
            kind=Kind.BAD_COMMAND,
        )


def _refuse_program(words: Sequence[str], program: str) -> None:
    """Raise SpecError if the words begin with a shell or a program that starts ranks itself."""
    first = words[0] if words else ""
    is_shell_script = first.endswith((".sh", ".bash"))
    if is_shell_script or first in _SHELLS:
        script = first if is_shell_script else " ".join(words[:2])
        raise SpecError(
            f"{script}: launch runs Python on every rank, not a shell",
            fix=f"launch the Python script that it starts: {program} launch SCRIPT.py -- "
            f"ARGUMENTS; or, if every rank shall run it: {program} launch {_PROGRAM} "
            f"{shlex.quote(script.rpartition(' ')[2])}",
            kind=Kind.BAD_COMMAND,
        )
    name = next((one for one in (" ".join(words[:2]), first) if one in _PROGRAMS), None)
    if name is not None:
        line = shlex.join(
            [program, "launch", "--module", _PROGRAMS[name], "--", *words[len(name.split()) :]]
        )
        raise _starts_itself(name, line)
    if first in _OWN_STARTERS:
        line = f"{program} launch --module MODULE -- ARGUMENTS"
        raise _starts_itself(first, f"launch the script or module that it starts: {line}")


def _starts_itself(name: str, fix: str) -> SpecError:
    cause = f"{name} starts ranks itself, as launch does on every node"
    return SpecError(cause, fix=fix, kind=Kind.BAD_COMMAND)


def meant_by(words: Sequence[str]) -> Meant | None:
    """Parse a line of another launcher; return ``None`` if it is none."""
    todo = list(words)
    launcher = _launcher(todo)
    if launcher is None:
        return None
    processes, is_program = "", False
    while todo:
        if (inner := _launcher(todo)) is not None:  # srun torchrun …, mpirun python …
            launcher = f"{launcher} {inner}"
            continue
        word = todo.pop(0)
        name, is_joined, value = word.partition("=")
        if _PROCESSES.fullmatch(name):
            value = value if is_joined else next(iter(todo), "")
            processes = value if value.isdigit() and int(value) else processes
        elif word in ("-m", "--module") and todo:
            return Meant(launcher, todo[0], tuple(todo[1:]), processes, is_module=True)
        elif word in NO_PYTHON:
            is_program = True
        elif not word.startswith("-") and (is_program or word.endswith(PYTHON)):
            return Meant(launcher, word, tuple(todo), processes, is_program=is_program)
    return Meant(launcher, processes=processes)


def _launcher(todo: list[str]) -> str | None:
    """Remove the name of another launcher from the words and return it."""
    first = todo[0] if todo else ""
    if _PYTHON.fullmatch(first):
        todo.pop(0)
        while todo and todo[0] in ("-u", "-P", "-B"):
            todo.pop(0)
        if todo[:1] == ["-m"] and len(todo) > 1 and todo[1].startswith(_MODULES):
            first = f"{first} -m {todo[1]}"
            del todo[:2]
        return first
    if first not in _LAUNCHERS:
        return None
    todo.pop(0)
    if first == "accelerate" and todo[:1] == ["launch"]:
        return f"{first} {todo.pop(0)}"
    return first
