"""Others' job files: shows what such a file would do before it is launched.

It looks like settings and is a program: it may bring code, and takes variables from the shell of
whoever launches it. One that this user exported, or has agreed to, is not asked about again, until
its content changes. A recipe only trains, and a script or a cell is a program for everybody to see.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from argparse import Namespace
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.asking import agrees
from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.spec_file import is_spec, read_spec
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import PYTHON, JobSpec
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.model.text.secrets import shown_words
from jupyter_mntrain.model.whereabouts import in_home, kept_folder
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from jupyter_mntrain.verbs.launching.job_files import runs_program
from jupyter_mntrain.verbs.verb import Context
from jupyter_mntrain.workload.workload import read_text

if TYPE_CHECKING:
    from jupyter_mntrain.trust.shared_file import SharedFile

REMEMBERED = 1000
"""Number of job files that are remembered as known."""
_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s\"'<>]+", re.IGNORECASE)
_MOST_SHOWN = 200


class _Known(Record, frozen=True):
    """SHA-256 of known job files, newest last."""

    files: tuple[str, ...] = ()


def agreement_option(parser: Parser) -> None:
    parser.flag(
        "--yes",
        help="launch somebody else's job file without confirming what it does",
    )


def remember_job_file(text: str) -> None:
    """Remember a job file, so that the user is not asked about it again."""
    with suppress(SpecError, OSError):  # no home, or a full disk: it is asked about
        book, digest = _book(), _digest(text)
        with book.locked():
            others = [one for one in book.read().files if one != digest]
            book.write(_Known(files=(*others, digest)[-REMEMBERED:]))


def ask_about_job_file(context: Context, args: Namespace, target: str | None) -> None:
    """Show what an unknown job file does, and ask, if it does more than train by a recipe.

    Other targets are not asked about.

    Args:
        target: as the person named it.

    Raises:
        SpecError: the person does not agree, or nobody can be asked; or it is no valid job file.
    """
    path = context.directory / in_home(target or "")
    is_script = path.suffix in PYTHON or runs_program(args)
    if not target or is_script or not path.is_file():
        return
    text = read_text(path)
    if not is_spec(text):
        return
    taken = {name for name, value in args.env if value is None}
    does = what_it_does(text, path.name, taken)
    if not does:
        return
    if not args.yes:
        name, cause = shown_line(path.name), "; ".join(does)
        lines = "".join(f"\n  {one}" for one in does)
        context.screen.say(
            Text(f"{name} was not written by you on this machine. When launched, it{lines}")
        )
        answer = None if args.json else agrees(f"Launch {name}?", context.program)
        if answer is None:
            raise SpecError(
                f"{name} is somebody else's job file, and nobody can confirm it: it {cause}",
                fix="read it; then add --yes",
            )
        if not answer:
            raise SpecError(f"{name} was not launched", fix="answer y if it may do that")
    remember_job_file(text)


def what_it_does(text: str, name: str = "", named: Collection[str] = ()) -> list[str]:
    """Return what a job file does beyond training by a recipe; empty for a known file.

    Args:
        name: of its file.
        named: variables that the person names, too.

    Raises:
        SpecError: it is no valid job file.
    """
    spec = read_spec(text, name=name) if name else read_spec(text)
    does = list(_doings(spec, named))
    return does if does and not _is_known(text) else []


def _doings(spec: JobSpec, named: Collection[str]) -> Iterator[str]:
    """Yield what a job file does beyond training by a recipe on its nodes, in words.

    Args:
        named: variables that the person names, too.
    """
    if not spec.runs_trainer:
        yield f"runs on its nodes: {_cut(shlex.join(shown_words(spec.entry)))}"
    sent = [name for name in spec.files if name != RECIPE_FILE or not spec.runs_trainer]
    if sent:
        yield f"brings files: {_listed(sent)}"
    if taken := [name for name in spec.from_environment if name not in named]:
        yield f"takes from your environment: {_listed(taken)}"
    if spec.environment:
        yield f"sets variables: {_listed(spec.environment)}"
    if spec.torchrun_arguments:
        yield f"passes to torchrun: {_cut(shlex.join(shown_words(spec.torchrun_arguments)))}"
    places = (spec.python, spec.workdir, spec.project and f"project {spec.project}")
    if used := [one for one in places if one]:
        yield f"uses on its nodes: {_listed(used)}"
    own = () if spec.runs_trainer else (*spec.entry, *spec.files.values())
    texts = (*spec.environment.values(), *own)
    if found := dict.fromkeys(one for text in texts for one in _ADDRESS.findall(text)):
        yield f"names addresses: {_listed(shown_words(tuple(found)))}"


def _listed(names: Iterable[str]) -> str:
    return _cut(", ".join(names))


def _cut(text: str) -> str:
    shown = shown_line(text)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def _is_known(text: str) -> bool:
    return _digest(text) in _book().read().files


def _book() -> SharedFile[_Known]:
    from jupyter_mntrain.trust.shared_file import SharedFile  # its locks are those of POSIX

    path = kept_folder("config") / "job_files.json"
    return SharedFile(path, _Known, what="the job files that you know")


def _digest(text: str) -> str:
    """Hash a text without leading and trailing blank lines, which terminals and editors add."""
    return hashlib.sha256(text.strip().encode()).hexdigest()
