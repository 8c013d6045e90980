"""Other launchers: what a user means who writes ``torchrun …`` after ``launch``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import NO_PYTHON, PYTHON
from jupyter_mntrain.verbs.launching.accelerate_options import CONFIG_FILE, rank_variables

_PYTHON: Final = re.compile(r"(.*/)?python(3(\.\d+)?)?")
_LAUNCHERS: Final = frozenset(
    {
        *("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun"),
        *("composer", "fabric", "lightning"),
    }
)
_SUBCOMMANDS: Final = {
    "accelerate": ("launch",),
    "fabric": ("run",),
    "lightning": ("run", "model"),
}
_PROGRAMS: Final = {
    "llamafactory-cli train": "llamafactory.launcher",
    "lmf train": "llamafactory.launcher",
    "axolotl train": "axolotl.cli.train",
    "litgpt": "litgpt",
}
"""Programs that start ranks themselves, and the module that each rank runs."""
_OWN_STARTERS: Final = frozenset({"torchx", "ray"})
"""Programs that start ranks themselves; their arguments determine the module."""
_BEFORE: Final = frozenset(
    {
        *(("env",), ("nohup",), ("time",)),
        *((one, "run") for one in ("uv", "poetry", "pdm", "pixi", "pipenv", "hatch", "rye")),
    }
)
"""What stands in front of a command, and says nothing about the ranks."""
_VARIABLE: Final = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_OF_RANKS: Final = re.compile(
    r"(LOCAL_|GROUP_|NODE_)?(RANK|WORLD_SIZE)|NNODES|NPROC_PER_NODE|MASTER_(ADDR|PORT)"
    r"|FORCE_TORCHRUN|RDZV_ID|M(IN|AX)_NNODES|MAX_RESTARTS|CUDA_VISIBLE_DEVICES"
)
"""Variables in front of a command by which other launchers learn what ``--member`` says here."""
_SHELLS: Final = frozenset({"bash", "sh", "zsh", "fish"})
_PROGRAM: Final = "--torchrun=--no-python"
_MODULES: Final = ("torch.distributed.", "accelerate.", "deepspeed.")
_PROCESSES: Final = re.compile(
    r"--(nproc[-_]per[-_]node|num[-_]processes|num[-_]gpus|ntasks-per-node)|-np|-n|--nproc"
)

_GPUS: Final = re.compile(r"\d+(,\d+)*")
_OF_FABRIC: Final = ("LT_ACCELERATOR", "LT_STRATEGY", "LT_DEVICES", "LT_NUM_NODES", "LT_PRECISION")
_OF_TUNE: Final = frozenset({"--standalone", "--run-path", "--run_path", "-m", "--module"})
"""Options of torchrun without a value."""
_OF_AXOLOTL: Final = frozenset({"__launcher", "__num_processes", "__main_process_port"})
_OF_TORCHRUN: Final = re.compile(r"--(nproc([-_]per[-_]node)?|num[-_](processes|gpus)|nnodes)")
_MODULE: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


class Meant(NamedTuple):
    """What a line of another launcher runs.

    Args:
        processes: on each node; empty if it was not said.
        is_module: whether the target is one, by its name.
        is_program: whether it is a program that ranks run by itself.
        options: of the launcher, without dashes; ``true`` for one without a value.
    """

    launcher: str
    target: str = ""
    arguments: tuple[str, ...] = ()
    processes: str = ""
    is_module: bool = False
    is_program: bool = False
    options: Mapping[str, str] = MappingProxyType({})


def refuse_other_launcher(words: Sequence[str], arguments: Sequence[str], program: str) -> None:
    """Refuse a line that begins with the name of another launcher, or as a shell's; say how to
    write it here.

    Args:
        words: after the verb.
        arguments: after ``--``.

    Raises:
        SpecError: they do.
    """
    given, command = _split(words)
    start = [program, "launch", *_with_env(given)]
    meant = meant_by([*command, *arguments])
    if meant is None and {f"--torchrun={one}" for one in NO_PYTHON} & {*words}:
        return
    _refuse_program(command, arguments, start)
    if meant is None:
        _refuse_torchruns(command, start)
        if len(command) < len(words):
            before = shlex.join(words[: len(words) - len(command)])
            raise SpecError(
                f"{before}: launch starts Python itself, on "
                "every node, and takes variables with --env",
                fix=shlex.join([*start, *command, *(("--", *arguments) if arguments else ())]),
                kind=Kind.BAD_COMMAND,
            )
        return
    line = [*start, *_with_env(_rank_variables(meant))]
    line += ["--module"] if meant.is_module else []
    line += [_PROGRAM] if meant.is_program else []
    line.append(meant.target or "SCRIPT.py")
    if meant.arguments:
        line += ["--", *meant.arguments]
    gpus = given.get("CUDA_VISIBLE_DEVICES", "")
    each = f"gpu{gpus}" if _GPUS.fullmatch(gpus) else meant.processes
    number = f", with --member HOST:{each} for each node" * bool(each)
    raise SpecError(
        f"{meant.launcher}: launch starts torchrun itself, on every node",
        fix=f"{shlex.join(line)}{number}",
        kind=Kind.BAD_COMMAND,
    )


def _split(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables that a line sets in front of a command, and the command."""
    given, at = dict[str, str](), 0
    while at < len(words):
        before = next((one for one in (1, 2) if tuple(words[at : at + one]) in _BEFORE), 0)
        if (variable := _VARIABLE.fullmatch(words[at])) is not None:
            given[variable[1]] = variable[2]
        at += before or 1
        if not before and variable is None:
            return given, [*words[at - 1 :]]
    return {}, [*words]


def _with_env(variables: Mapping[str, str]) -> list[str]:
    """Return the options of launch that set variables, those that it sets itself left out."""
    kept = [f"{one}={value}" for one, value in variables.items() if not _OF_RANKS.fullmatch(one)]
    files = [variables[CONFIG_FILE]] if CONFIG_FILE in variables else []
    return [
        *(word for one in kept for word in ("--env", one)),
        *(word for one in files for word in ("--file", one)),
    ]


def _rank_variables(meant: Meant) -> dict[str, str]:
    """Return the variables by which a launcher tells each rank what its options say."""
    if "accelerate" in meant.launcher:
        return rank_variables(meant.options)
    if meant.launcher.endswith(("fabric run", "lightning run model")):
        named = {f"LT_{one.upper()}": value for one, value in meant.options.items()}
        return {"LT_CLI_USED": "1", **{one: named[one] for one in _OF_FABRIC if one in named}}
    return {}


def _refuse_torchruns(words: Sequence[str], start: Sequence[str]) -> None:
    """Raise SpecError if the words have options of torchrun."""
    for at, word in enumerate(words):
        name, is_joined, value = word.partition("=")
        if name in NO_PYTHON:
            raise SpecError(
                f"{name} is torchrun's",
                fix=shlex.join([*start, *words[:at], _PROGRAM, *words[at + 1 :]]),
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
    if option == "-m" and _MODULE.fullmatch(module) and not has_target and start[0][:1] != "%":
        rest = [one for one in rest if one]
        raise SpecError(
            f"-m {module} names a node (--member), not a module",
            fix=shlex.join([*start, "--module", module, *(("--", *rest) if rest else ())]),
            kind=Kind.BAD_COMMAND,
        )


def _refuse_program(command: Sequence[str], arguments: Sequence[str], start: Sequence[str]) -> None:
    """Raise SpecError if the words begin with a shell or a program that starts ranks itself."""
    words = [one for one in (*command, *arguments) if one != "--"]
    first = words[0] if words else ""
    launch = shlex.join(start)
    is_shell_script = first.endswith((".sh", ".bash"))
    if is_shell_script or first in _SHELLS:
        script = first if is_shell_script else " ".join(words[:2])
        raise SpecError(
            f"{script}: launch runs Python on every rank, not a shell",
            fix=f"launch the Python script that it starts: {launch} SCRIPT.py -- "
            f"ARGUMENTS; or, if every rank shall run it: {launch} {_PROGRAM} "
            f"{shlex.quote(script.rpartition(' ')[2])}",
            kind=Kind.BAD_COMMAND,
        )
    if first == "yolo":  # it starts no ranks where torchrun has
        raise _starts_itself(first, shlex.join([*start, _PROGRAM, first, "--", *words[1:]]))
    if words[:2] == ["tune", "run"]:
        raise _starts_itself("tune run", _with_copies(words[2:], start))
    name = next((one for one in (" ".join(words[:2]), first) if one in _PROGRAMS), None)
    if name is not None:
        # Of axolotl's own line, what comes after -- is for the launcher.
        own = command if name.startswith("axolotl") and len(command) > 1 else words
        rest = _told(name, list(own[len(name.split()) :]))
        # Its configuration names files by paths from here.
        here = ["--project", "."] if any(map(_is_here, rest)) else []
        module = ["--module", _PROGRAMS[name]]
        raise _starts_itself(name, shlex.join([*start, *here, *module, "--", *rest]))
    if first in _OWN_STARTERS:
        line = f"{launch} --module MODULE -- ARGUMENTS"
        raise _starts_itself(first, f"launch the script or module that it starts: {line}")


def _is_here(argument: str) -> bool:
    path = Path(argument)
    return path.suffix in (".yaml", ".yml", ".json") and not path.is_absolute() and path.is_file()


def _told(name: str, arguments: list[str]) -> list[str]:
    """Return a program's arguments as its module takes them from each rank."""
    if name == "litgpt" and arguments and arguments[0].startswith(("pretrain", "finetune")):
        has_nodes = any(one.partition("=")[0] == "--num_nodes" for one in arguments)
        return arguments if has_nodes else [*arguments, "--num_nodes", "NODES"]
    if not name.startswith("axolotl"):
        return arguments
    kept, todo = [], arguments
    while todo:
        option, is_joined, _ = todo[0].partition("=")
        is_launchers = option.replace("-", "_") in _OF_AXOLOTL
        kept += [] if is_launchers else todo[:1]
        todo = todo[2 if is_launchers and not is_joined else 1 :]
    return kept


def _with_copies(words: Sequence[str], start: Sequence[str]) -> str:
    """Return what runs a recipe of torchtune: a copy of it, with a copy of its configuration."""
    todo = [*words]
    while todo and todo[0].startswith("-"):
        option = todo.pop(0)
        del todo[: 0 if "=" in option or option in _OF_TUNE else 1]
    recipe, *rest = todo or ["RECIPE"]
    script = recipe if recipe.endswith(PYTHON) else f"{recipe}.py"
    copies = [] if script == recipe else [f"tune cp {recipe} {script}"]
    at = rest.index("--config") + 1 if "--config" in rest[:-1] else 0
    if at and not rest[at].endswith((".yaml", ".yml")):
        own = f"{rest[at].rpartition('/')[2]}.yaml"
        copies.append(f"tune cp {rest[at]} {own}")
        rest[at] = own
    sent = ["--file", rest[at]] if at else []
    return "; ".join([*copies, shlex.join([*start, script, *sent, "--", *rest])])


def _starts_itself(name: str, fix: str) -> SpecError:
    cause = f"{name} starts ranks itself, as launch does on every node"
    return SpecError(cause, fix=fix, kind=Kind.BAD_COMMAND)


def meant_by(words: Sequence[str]) -> Meant | None:
    """Parse a line of another launcher; return ``None`` if it is none."""
    todo = list(words)
    launcher = _launcher(todo)
    if launcher is None:
        return None
    meant, options = Meant(launcher), dict[str, str]()
    while todo:
        if (inner := _launcher(todo)) is not None:  # srun torchrun …, mpirun python …
            meant = meant._replace(launcher=f"{meant.launcher} {inner}")
            continue
        word = todo.pop(0)
        name, is_joined, value = word.partition("=")
        if name.startswith("--"):
            other = next((one for one in todo[:1] if not one.startswith("-")), "true")
            options[name[2:].replace("-", "_")] = value if is_joined else other
        if _PROCESSES.fullmatch(name):
            value = value if is_joined else next(iter(todo), "")
            if value.isdigit() and int(value):
                meant = meant._replace(processes=value)
        elif word in ("-m", "--module") and todo:
            meant = meant._replace(target=todo.pop(0), arguments=tuple(todo), is_module=True)
            break
        elif word in NO_PYTHON:
            meant = meant._replace(is_program=True)
        elif not word.startswith("-") and (meant.is_program or word.endswith(PYTHON)):
            meant = meant._replace(target=word, arguments=tuple(todo))
            break
    return meant._replace(options=options)


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
    for more in _SUBCOMMANDS.get(first, ()):
        if todo[:1] == [more]:
            first = f"{first} {todo.pop(0)}"
    return first
