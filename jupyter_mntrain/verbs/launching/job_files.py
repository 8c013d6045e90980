"""Job files: which files a launch sends, and which of them it runs."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from jupyter_mntrain.doctor.script.needs import first_folder, read_script
from jupyter_mntrain.launch.project.ignoring import IgnoreRules
from jupyter_mntrain.launch.project.own_imports import config_folder, own_imports
from jupyter_mntrain.launch.project.stage import (
    LIMIT_BYTES,
    Listing,
    StagedProject,
    is_secret_name,
    list_folder,
    staged,
)
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import NO_PYTHON, PYTHON
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.verbs.verb import Context
from jupyter_mntrain.workload.given_files import GivenFiles, found_file, joined, same_name
from jupyter_mntrain.workload.workload import (
    CELL_SCRIPT,
    SHELL_SCRIPTS,
    Workload,
    from_program,
    read_text,
)

_NAMED = 3
_WORD = re.compile(r"[\w./-]+")
"""A word in a shell script that may be a file name."""


class Chosen(NamedTuple):
    """The folder that is sent.

    Args:
        because: why, if nobody named it.
    """

    root: Path
    because: str = ""


def runs_program(args: Namespace) -> bool:
    """Whether ranks run a program directly instead of Python."""
    return bool(NO_PYTHON.intersection(args.torchrun))


def program_here(context: Context, args: Namespace) -> list[str]:
    """Return the program to send, if ranks run one from here; empty if it is on the nodes."""
    target = getattr(args, "target", None)
    if not target or args.workdir or not runs_program(args):
        return []
    return [target] if (context.directory / in_home(target)).is_file() else []


def program_workload(context: Context, args: Namespace, sent: GivenFiles) -> Workload:
    """Return the workload that runs a program directly: a file from here, or one on the nodes.

    Raises:
        SpecError: there is no such file, or it cannot be run.
    """
    target, path = args.target, context.directory / in_home(args.target)
    if program_here(context, args):
        name = next(one for one, place in sent.paths.items() if place.samefile(path))
        return from_program(path, f"./{name}", context.arguments)
    is_relative = "/" in target and not target.startswith(("/", "~"))
    if not args.workdir and (is_relative or target.endswith((*SHELL_SCRIPTS, *PYTHON))):
        read_text(path, "program")  # says what is wrong with it
    inside = (context.directory / in_home(target)).resolve()
    root = in_home(args.workdir).resolve() if args.workdir else None
    if root is not None and inside.is_relative_to(root) and inside.is_file():
        target = f"./{inside.relative_to(root).as_posix()}"
    return from_program(None, target, context.arguments)


def refuse_contradictions(context: Context, args: Namespace) -> None:
    """Refuse options that cannot be used together, before anything is read.

    A relative working directory becomes absolute; the nodes must have it, too.
    """
    if args.workdir and not args.workdir.startswith(("/", "~")):
        args.workdir = os.path.normpath(context.directory / args.workdir)
    if args.project and args.no_project:
        raise SpecError("--project and --no-project cannot be used together", fix="use one of them")
    if args.project and args.workdir:
        raise SpecError(
            "--workdir and --project cannot be used together: the first runs in a folder that the "
            "nodes have, the second sends them one",
            fix="use one of them",
        )
    if args.module and (getattr(args, "target", None) or context.cell is not None):
        what = args.target if getattr(args, "target", None) else "a cell"
        raise SpecError(
            f"--module {args.module} and {what} cannot be used together",
            fix="name a module or a script; arguments go after --",
        )


def choose_project(context: Context, args: Namespace, *, is_stored: bool) -> Chosen | None:
    """Return the folder whose files are sent; ``None`` = only the job's own small files.

    Raises:
        SpecError: the script cannot be read.
    """
    if args.project:
        return Chosen((context.directory / in_home(args.project)).resolve())
    if args.no_project or args.workdir:
        return None
    if args.module:
        first = args.module.partition(".")[0]
        here = context.directory
        if (here / first).is_dir() or (here / f"{first}.py").is_file():
            return Chosen(here.resolve(), f"it has the module {first}")
        return None
    if is_stored:
        return None
    if context.cell is not None:
        return _of_imports(context.cell, context.directory, "the cell")
    path = context.directory / in_home(args.target or "")
    if path.suffix == ".toml" or not path.is_file():
        return None
    if runs_program(args):
        return _of_names(path)
    return _of_imports(read_text(path), path.parent, path.name)


def read_here(context: Context, args: Namespace, chosen: Chosen | None) -> dict[str, Path]:
    """Return the local files that a script always reads by a relative path, by that path.

    Run by hand, the script would find them.

    Not what git ignores, nor what usually holds a secret.

    Args:
        chosen: the folder that is sent, which has its own files.
    """
    if args.project or args.no_project or args.workdir or args.module or runs_program(args):
        return {}
    path = context.directory / in_home(args.target or "")
    if context.cell is not None:
        text, folder, name = context.cell, context.directory, ""
    elif path.is_file() and path.suffix != ".toml":
        text, folder, name = read_text(path), path.parent, path.name
    else:
        return {}
    root = None if chosen is None else chosen.root
    if root is not None and path.resolve().is_relative_to(root):
        name = path.resolve().relative_to(root).as_posix()
    needs = read_script(text, context.arguments, name=name)
    found = {}
    for need in needs.reads:
        what = os.path.normpath(need.what)
        is_within = not what.startswith(("/", "~", ".."))
        if not need.is_certain or not is_within or first_folder(what) in needs.makes:
            continue
        if root is not None and (root / what).exists():
            continue
        bases = dict.fromkeys((context.directory, folder))
        base = next((one for one in bases if (one / what).is_file()), None)
        if base is not None and what != name and not _stays_here(base.resolve(), what):
            found[what] = base / what
    return found


def _stays_here(folder: Path, name: str) -> bool:
    """Whether a file below a folder is hidden, ignored, or named like a secret."""
    path = folder / name
    if path.name.startswith(".") or is_secret_name(path.name):
        return True
    rules = IgnoreRules(folder).entered(folder)
    for above in reversed(path.relative_to(folder).parents[:-1]):
        if rules.ignores(folder / above, is_folder=True):
            return True
        rules = rules.entered(folder / above)
    return rules.ignores(path, is_folder=False)


def _of_names(program: Path) -> Chosen | None:
    """Return the folder of a program that names files in it, such as a shell script."""
    try:
        words = dict.fromkeys(_WORD.findall(program.read_text()))
    except (OSError, UnicodeDecodeError):
        return None
    folder, own = program.parent, program.name
    inside = (one for one in words if not one.startswith(("/", "..")) and Path(one).name != own)
    names = [one for one in inside if (folder / one).is_file()]
    return _chosen(program.parent, f"{program.name} names", names, "in")


def _of_imports(source: str, folder: Path, what: str) -> Chosen | None:
    folder = folder.resolve()
    configs = config_folder(source, folder)
    if configs is not None and folder != configs:
        root = folder if configs.is_relative_to(folder) else configs.parent
        if folder.is_relative_to(root):
            return Chosen(root, f"{what} has its configuration in {configs.relative_to(root)}")
    return _chosen(folder, f"{what} imports", own_imports(source, folder), "from")


def _chosen(folder: Path, what: str, names: Sequence[str], where: str) -> Chosen | None:
    if not names:
        return None
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return Chosen(folder.resolve(), f"{what} {', '.join(names[:_NAMED])}{more} {where} it")


def module_workload(module: str, arguments: tuple[str, ...]) -> Workload:
    """Return the workload that runs a module by name.

    Raises:
        SpecError: it is no module's name.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise SpecError(
            f"--module {module}: not the name of a module",
            fix="write it like pkg.train; a file is named without --module",
        )
    return Workload(
        entry=("-m", module, *arguments),
        files={},
        name=module.rpartition(".")[2],
        took=f"module {module}",
    )


def in_workdir(context: Context, args: Namespace, workload: Workload | None) -> Workload:
    """Return a script's workload in a folder of the nodes; if the file is in it, run it there.

    Args:
        workload: as read here; ``None`` = there is no such file here.
    """
    target = args.target or ""
    if workload is None:
        return Workload(
            entry=(target, *context.arguments),
            files={},
            name=PurePosixPath(target).stem,
            took=f"script {target} in {args.workdir}",
        )
    path = (context.directory / in_home(target)).resolve()
    root = in_home(args.workdir).resolve()
    if workload.recipe is not None or not target or not path.is_relative_to(root):
        return workload
    inside = path.relative_to(root).as_posix()
    return msgspec.structs.replace(workload, entry=(inside, *workload.entry[1:]), files={})


def stage_files(
    context: Context,
    args: Namespace,
    chosen: Chosen | None,
    given: GivenFiles,
    before: str | None,
) -> StagedProject | None:
    """Read and hash the files that are sent as a project; ``None`` if there are none.

    Args:
        before: the project of a stored job.

    Raises:
        SpecError: it is too large, a file cannot be read, or two would have one name.
    """
    if chosen is None and not given.others.files:
        return None
    if chosen is None and before is not None:
        raise SpecError(
            f"--file {given.others.files[0].name}: this job has a project, to which files cannot "
            "be added here",
            fix="launch it from its folder again: --project DIR",
        )
    root = chosen.root if chosen else context.directory
    listing = Listing((), (), ())
    if chosen is not None:
        listing = with_script(list_folder(root), root, context.directory, args.target)
    listing = joined(listing, given)
    return staged(root, listing, limit_bytes=args.project_limit or LIMIT_BYTES)


def with_script(listing: Listing, root: Path, directory: Path, target: str | None) -> Listing:
    """Add the script that the user named to a folder's files, even if git ignores it."""
    script = (directory / in_home(target or "")).resolve()
    if not (script.is_relative_to(root) and script.suffix != ".toml" and script.is_file()):
        return listing
    name = script.relative_to(root).as_posix()
    if name in {one.name for one in listing.files}:
        return listing
    return listing._replace(files=(*listing.files, found_file(name, script)))


def in_project(
    context: Context, args: Namespace, workload: Workload, chosen: Chosen, project: StagedProject
) -> Workload:
    """Return a workload that runs in the project that is sent.

    Raises:
        SpecError: a recipe has none; or the script is not in it.
    """
    if workload.recipe is not None:
        raise SpecError(
            "--project: a recipe runs the built-in trainer, which needs no project",
            fix="omit it; a recipe names its own data",
        )
    script = workload.entry[0]
    if script == "-m":
        return workload
    if script == CELL_SCRIPT and context.cell is not None:
        if CELL_SCRIPT in project.names:
            raise same_name(CELL_SCRIPT, chosen.root / CELL_SCRIPT, Path("the cell"))
        return workload
    path = (context.directory / in_home(args.target or "")).resolve()
    inside = path.relative_to(chosen.root).as_posix() if path.is_relative_to(chosen.root) else ""
    if runs_program(args) and inside in project.names:
        return msgspec.structs.replace(workload, entry=(f"./{inside}", *workload.entry[1:]))
    if script not in workload.files:
        return workload
    if inside not in project.names:
        raise SpecError(
            f"the script {args.target} is not in the project {chosen.root}",
            fix="name a script in it, or check what .gitignore and .mntrainignore leave out",
        )
    files = {name: text for name, text in workload.files.items() if name != script}
    return msgspec.structs.replace(workload, entry=(inside, *workload.entry[1:]), files=files)
