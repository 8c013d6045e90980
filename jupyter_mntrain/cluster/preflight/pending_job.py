"""Pending job: what the doctor needs to know about a job that is about to be launched."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.doctor.check import PendingJob, Unsent
from jupyter_mntrain.doctor.script.given_paths import given_paths, named_paths
from jupyter_mntrain.doctor.script.hidden_modules import hidden_modules
from jupyter_mntrain.doctor.script.needs import Need, ScriptNeeds, may_make, read_script
from jupyter_mntrain.doctor.workload.asked_paths import question_of_job
from jupyter_mntrain.launch.project.ignoring import OWN
from jupyter_mntrain.launch.project.own_imports import LOADED_BEFORE, is_module
from jupyter_mntrain.launch.project.stage import StagedProject
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.records.doctor.machine import (
    LOADERS,
    LONGEST_NAME,
    MOST_ASKED,
    MOST_MODULES,
    MOST_VARIABLES,
    AskedPath,
    AskedScript,
    FoundScript,
    MachineQuestion,
)
from jupyter_mntrain.model.records.job import PYTHON, JobSpec
from jupyter_mntrain.model.sources.launchers import without_launchers
from jupyter_mntrain.model.whereabouts import current_folder

_CACHE = re.compile(r"\.|__pycache__$")
"""Files and folders that a script never means to read."""
_MAY_CHANGE = re.compile(r"\b(environb?|putenv|load_dotenv|runpy|exec|sys|site|pip|conda)\b")
"""In the text of each module that changes the environment, or where Python looks for modules."""
_OF_A_LOGIN = re.compile(
    r"HOME|USER|LOGNAME|SHELL|TERM|LANG|PWD|OLDPWD|PATH|HOST(NAME)?|TMPDIR|TEMP|TMP|DISPLAY|MAIL"
    r"|EDITOR|VIRTUAL_ENV|PYTHON\w+|(LC|XDG|SSH|DBUS|CONDA|JPY|JUPYTER|COLAB|VSCODE|WSL|SLURM|KUBERNETES)_\w+"
)
"""Variables that each login, or each program, has for itself."""
_FOLDERS_OF_PACKAGES = ("src", "lib")


async def find_script(
    spec: JobSpec, client: AgentClient | None, patience_s: float | None = None
) -> FoundScript:
    """Read a job's script from a node, if it is not sent but lies there: in the folder that the job
    runs in, or at an absolute path.

    Args:
        client: of the node that is asked; what it does not tell, nothing is said of.
    """
    asked = _asked_script(spec)
    if asked is None or client is None:
        return FoundScript()
    # An older agent does not know the question.
    with suppress(MntrainError, TimeoutError):
        found = await asyncio.wait_for(client.script(asked), patience_s)
        is_whole = spec.entry[0].startswith("/") and found.name
        return msgspec.structs.replace(found, name=spec.entry[0]) if is_whole else found
    return FoundScript()


def _asked_script(spec: JobSpec) -> AskedScript | None:
    names = tuple(_script_names(spec))
    if not names or not names[0].endswith(PYTHON) or any(one in spec.files for one in names):
        return None
    if names[0].startswith("/"):
        path = PurePosixPath(names[0])
        return AskedScript(str(path.parent), (path.name,))
    return AskedScript(spec.workdir, names) if spec.workdir is not None else None


def pending_job(
    spec: JobSpec,
    head: str,
    project: StagedProject | None = None,
    there: FoundScript = FoundScript(),  # noqa: B008 - frozen
) -> PendingJob:
    """Return what is known about a job before it starts.

    Args:
        head: name of the node with rank 0.
        project: its files, if they are on this machine.
        there: its script, from :func:`find_script`.
    """
    spec = _with_script(spec, there)
    is_gloo = not any(participant.gpus for participant in spec.participants)
    name, text = _script(spec, project)
    job = PendingJob(
        head=head,
        is_gloo=is_gloo,
        port=spec.port,
        mixed_versions=spec.mixed_versions,
        name=name,
        has_project=project is not None,
        nodes=len(spec.participants),
    )
    arguments = spec.entry[2 if spec.entry[:1] == ("-m",) else 1 :]
    if spec.workdir is None and name:
        named = _unsent_arguments(arguments, _sent(spec, project), project)
        job = msgspec.structs.replace(job, unsent_arguments=named)
    sent = _sent(spec, project) | {*there.beside}
    sent |= {str(PurePosixPath(name).parent / one) for one in there.beside}
    if text is None:
        installed = _installed(spec)
        lacks = _unsent_modules(installed.modules, sent, spec, project) if installed else {}
        return msgspec.structs.replace(
            job, script=installed, unsent=lacks if spec.workdir is None else {}
        )
    script = read_script(text, arguments, spec.environment, name=name)
    there_too = (one for one in script.loads if (current_folder() / one.what).is_file())
    script = msgspec.structs.replace(script, reads=(*script.reads, *there_too))
    # Its package comes before a module, and what that imports from it.
    own = {spec.entry[1].partition(".")[0]} if spec.entry[0] == "-m" else set[str]()
    foreign = tuple(_foreign([*script.modules, *script.names], sent, spec, project, own))
    may_set, finds_more = _changed_by(own, sent, spec, project)
    foreign = tuple(_not_found_later(foreign, script, sent, finds_more=finds_more))
    return msgspec.structs.replace(
        job,
        script=msgspec.structs.replace(
            script,
            modules=tuple(one for one in foreign if ":" not in one.what),
            names=tuple(one for one in foreign if ":" in one.what),
            variables=tuple(one for one in script.variables if not {one.what, "*"} & may_set),
            asks=tuple(one for one in script.asks if not {one.what, "*"} & may_set),
        ),
        set_here=_set_here([*script.variables, *script.asks], spec),
        # A folder of the nodes has files of its own.
        unsent=_unsent(script, sent, project) | _unsent_modules(foreign, sent, spec, project)
        if spec.workdir is None
        else {},
        hides=hidden_modules("" if spec.entry[0] == "-m" else name, sent),
        placed=_placed(spec.workdir, _relative(script, _sent(spec, project))),
        given=_placed(spec.workdir, given_paths(arguments, script)),
    )


def question_of(
    job: PendingJob,
    spec: JobSpec,
    there: FoundScript = FoundScript(),  # noqa: B008 - frozen
) -> MachineQuestion:
    """Return the question that agents are asked for a job.

    Args:
        there: as for :func:`pending_job`.

    Raises:
        RecipeError: its recipe is not valid.
    """
    asked = MachineQuestion(python=spec.python)
    if spec.entry:
        asked = question_of_job(spec)
        hub = question_of_job(_with_script(spec, there)).hub if there.name else asked.hub
        asked = msgspec.structs.replace(asked, hub=hub)
    script = job.script or ScriptNeeds()
    paths = [
        *asked.paths,
        *(AskedPath(use="output", path=one) for one in _absolute(script.writes, is_certain=True)),
        *(
            AskedPath(use="input", path=one)
            for one in _absolute(script.reads)
            if not may_make(script, one)
        ),
        *(AskedPath("input", one, is_compared=True) for one in job.placed.values()),
        *(AskedPath("input", one) for one in job.given.values()),
    ]
    return msgspec.structs.replace(
        asked,
        paths=tuple(paths)[:MOST_ASKED],
        modules=tuple(
            what
            for needs in (script.modules, script.names)
            for what in sorted(one.what for one in needs)
            if len(what) <= LONGEST_NAME
        )[:MOST_MODULES],
        variables=tuple(
            dict.fromkeys(
                one.what
                for one in (*script.variables, *script.asks)
                if one in script.variables or one.what in job.set_here
            )
        )[:MOST_VARIABLES],
        loaders={name: spec.environment[name] for name in LOADERS if name in spec.environment},
    )


def _foreign(
    imported: Iterable[Need],
    sent: Iterable[str],
    spec: JobSpec,
    project: StagedProject | None,
    read_own: set[str],
) -> Iterator[Need]:
    """Yield the modules, and names in them, that the job imports but that are not sent with it.

    Args:
        read_own: gets those that are.
    """
    roots = _import_roots(spec)
    own = {
        one.removeprefix(root).partition("/")[0].removesuffix(".py")
        for root in roots
        for one in sent
        if one.startswith(root)
    } - LOADED_BEFORE
    # What every rank comes to first: one that is read as that is not read again.
    todo = sorted(imported, key=lambda one: not one.is_certain)
    known: set[str] = set()
    while todo:
        one = todo.pop(0)
        if one.what in known:
            continue
        known.add(one.what)
        if one.what.partition(":")[0].partition(".")[0] not in own:
            yield one
            continue
        if ":" in one.what:
            continue
        read_own.add(one.what)
        ends = (f"{one.what}.py", f"{one.what}/__init__.py")
        names = (root + end for root in roots for end in ends)
        read = read_script(
            next(filter(None, (_text(name, spec, project) for name in names)), ""), is_main=False
        )
        inner = [
            Need(each.what, one.line, each.is_certain and one.is_certain)
            for each in (*read.modules, *read.names)
        ]
        todo = sorted([*todo, *inner], key=lambda each: not each.is_certain)


def _changed_by(
    own: Collection[str], sent: Iterable[str], spec: JobSpec, project: StagedProject | None
) -> tuple[set[str], bool]:
    """Return the variables that the job's modules may set, as in :class:`ScriptNeeds`, and whether
    they may change Python's search path.
    """
    may_set, finds_more = set[str](), False
    roots = _import_roots(spec)
    for name in sorted(sent):
        firsts = {name.removeprefix(one).partition("/")[0] for one in roots if name.startswith(one)}
        if not name.endswith(".py") or not {one.removesuffix(".py") for one in firsts} & {*own}:
            continue
        text = _text(name, spec, project)
        if text is None:  # it lies on the nodes
            may_set.add("*")
        elif _MAY_CHANGE.search(text):
            read = read_script(text, is_main=False)
            may_set |= read.may_set
            finds_more |= read.finds_more
    return may_set, finds_more


def _not_found_later(
    foreign: Iterable[Need], script: ScriptNeeds, sent: Iterable[str], *, finds_more: bool
) -> Iterator[Need]:
    """Yield the needed modules, less certain if the job may change Python's search path itself."""
    if not (script.finds_more or finds_more):
        yield from foreign
        return
    there = {part.removesuffix(".py") for one in sent for part in PurePosixPath(one).parts}
    for one in foreign:
        is_certain = one.is_certain and not finds_more
        if is_certain or one.what.partition(":")[0].partition(".")[0] not in there:
            yield msgspec.structs.replace(one, is_certain=is_certain)


def _set_here(taken: Iterable[Need], spec: JobSpec) -> frozenset[str]:
    """Return a script's variables that are set here, but that a launch neither sends nor sets."""
    names = {one.what for one in taken} - {*spec.environment, *spec.from_environment}
    here = without_launchers({one: os.environ[one] for one in names if os.environ.get(one)})
    return frozenset(one for one in here if not _OF_A_LOGIN.fullmatch(one))


def _installed(spec: JobSpec) -> ScriptNeeds | None:
    """Return what ``-m`` needs if its module is not sent: the nodes must have its package."""
    if spec.entry[:1] != ("-m",) or len(spec.entry) < 2 or spec.needs_package:
        return None
    is_certain = spec.workdir is None
    package, _, name = spec.entry[1].rpartition(".")
    first = Need(spec.entry[1].partition(".")[0], 0, is_certain)
    inner = (Need(f"{package}:{name}", 0, is_certain),) if package else ()
    return ScriptNeeds(modules=(first,), names=inner)


def _import_roots(spec: JobSpec) -> list[str]:
    """Folders of what is sent, each with a ``/`` at its end, that Python finds modules in."""
    own = PurePosixPath("" if spec.entry[0] == "-m" else spec.entry[0]).parent
    # What lies beside a script of the nodes is known by its names.
    folders = ["." if own.is_absolute() else str(own)]
    folders += spec.environment.get("PYTHONPATH", "").split(":")
    plain = (os.path.normpath(one) for one in folders if one and not one.startswith("/"))
    return list(dict.fromkeys("" if one == "." else f"{one}/" for one in plain))


def _script(spec: JobSpec, project: StagedProject | None) -> tuple[str, str | None]:
    """Return the name and text of the script; no text if there is none, or none on this machine."""
    names = _script_names(spec)
    if not names:
        return "", None
    if spec.entry[0] == "-m":
        names = [root + name for root in _import_roots(spec) for name in names]
    found = ((name, _text(name, spec, project)) for name in names)
    return next((one for one in found if one[1] is not None), (names[0], None))


def _script_names(spec: JobSpec) -> list[str]:
    """Return the possible file names of the script; empty if the job runs none."""
    if spec.needs_package or not spec.entry or spec.runs_program:
        return []
    if spec.entry[0] != "-m":
        return [spec.entry[0]]
    stem = spec.entry[1].replace(".", "/") if len(spec.entry) > 1 else ""
    return [f"{stem}.py", f"{stem}/__main__.py"]


def _with_script(spec: JobSpec, there: FoundScript) -> JobSpec:
    """Return the job as if its script were sent with it."""
    if not there.name:
        return spec
    return msgspec.structs.replace(spec, files={**spec.files, there.name: there.text})


def _text(name: str, spec: JobSpec, project: StagedProject | None) -> str | None:
    """Return the text of a file that is sent with the job; ``None`` if it is not known here."""
    if name in spec.files:
        return spec.files[name]
    source = _source(project, name) if project is not None else None
    try:
        return source.read_text() if source is not None else None
    except (OSError, UnicodeDecodeError):  # what sends it says so
        return None


def _source(project: StagedProject, name: str) -> Path | None:
    """Return the local path of a project's file."""
    sha256 = next((one.sha256 for one in project.tree.files if one.path == name), "")
    return project.sources.get(sha256)


def _sent(spec: JobSpec, project: StagedProject | None) -> set[str]:
    return {*spec.files, *(project.names if project else ())}


def _unsent(
    script: ScriptNeeds,
    sent: Collection[str],
    project: StagedProject | None,
) -> dict[str, Unsent]:
    """Return the paths that the script reads but that are not sent, and how to send each."""
    found = {one: Unsent(_how_to_send(one, project)) for one in _relative(script, sent)}
    written = [PurePosixPath(one.what) for one in script.writes]
    for path in (one.what for one in script.reads):
        own = PurePosixPath(path)
        is_made = any(own.is_relative_to(one) or one.is_relative_to(own) for one in written)
        # What is here already, and not written by its name, is rather read than made.
        if path not in found and os.path.normpath(path) not in sent and not is_made:
            lack = _left_out(path, project)
            found |= {path: lack} if lack.how else {}
    return found


def _unsent_modules(
    modules: Iterable[Need], sent: Collection[str], spec: JobSpec, project: StagedProject | None
) -> dict[str, Unsent]:
    """Return the modules that are on this machine but not found by the job, and how to
    send each.
    """
    found = {}
    for name in (one.what for one in modules if ":" not in one.what):
        if folder := _folder_with(name, sent):
            found[name] = Unsent(f"--env PYTHONPATH={_on_path(folder, spec)}")
        elif how := _how_to_send(f"{name}.py", project):
            found[name] = Unsent(how)
        elif _how_to_send(f"{name}/__init__.py", project):
            found[name] = Unsent(_how_to_send(name, project))
        elif project is None and (folder := _folder_here(name)):
            path = f"--project . --env PYTHONPATH={_on_path(folder, spec)}"
            # A module runs from any folder.
            found[name] = Unsent(f"--project {folder}" if spec.entry[0] == "-m" else path)
    return found


def _folder_with(name: str, sent: Collection[str]) -> str:
    """The folder of what is sent that has a module outside a package; empty if none has. The root,
    too: there Python does not look for a script of another folder.
    """
    found = []
    for one in map(PurePosixPath, sent):
        places = [one, *one.parents] if one.suffix == ".py" else []
        found += [str(at.parent) for at in places if at.name in (name, f"{name}.py")]
    plain = [one for one in found if f"{one}/__init__.py" not in sent]
    return min(plain, key=lambda one: (one.count("/"), one), default="")


def _folder_here(name: str) -> str:
    """Return which usual source folder has a module on this machine; empty if none has."""
    here = (current_folder() / one for one in _FOLDERS_OF_PACKAGES)
    return next((one.name for one in here if is_module(one, name)), "")


def _on_path(folder: str, spec: JobSpec) -> str:
    """Return the job's ``PYTHONPATH`` with this folder added."""
    return ":".join(filter(None, (folder, spec.environment.get("PYTHONPATH"))))


def _unsent_arguments(
    arguments: Sequence[str], sent: Collection[str], project: StagedProject | None
) -> dict[str, str]:
    """Return the arguments that name local files which no node will have, and how to send each."""
    here = current_folder()
    folders = {str(parent) for one in sent for parent in PurePosixPath(one).parents}
    found = {}
    for given in named_paths(arguments):
        path = os.path.normpath(given)
        is_here = not path.startswith("..") and path != "." and (here / path).exists()
        if is_here and path not in {*sent, *folders}:
            found[given] = _how_to_send(path, project)
    return found


def _left_out(path: str, project: StagedProject | None) -> Unsent:
    """Return what a project leaves out of an existing path, except for caches and hidden files."""
    if project is None or not (project.root / path).exists():
        return Unsent()
    if project.tree.leaves_out(path):
        return Unsent(_how_to_send(path, project))
    below = (one for one in project.tree.left_out if PurePosixPath(one).is_relative_to(path))
    part = next((one for one in below if not any(map(_CACHE.match, PurePosixPath(one).parts))), "")
    return Unsent(f"the line !{path}/** in {project.root / OWN}", part) if part else Unsent()


def _how_to_send(path: str, project: StagedProject | None) -> str:
    """Return the option that sends a path; empty if the path does not exist here."""
    path = os.path.normpath(path)
    if path.startswith("../"):  # only a folder above has it and the script
        above = "/".join(one for one in PurePosixPath(path).parts if one == "..")
        root = project.root if project is not None else current_folder()
        folder = str((root / above).resolve()) if project is not None else above
        return f"--project {folder}" if (root / path).exists() else ""
    if project is not None and project.tree.leaves_out(path) and (project.root / path).exists():
        return f"the line !{path} in {project.root / OWN}"
    return f"--file {shlex.quote(path)}" if (current_folder() / path).exists() else ""


def _relative(script: ScriptNeeds, sent: Iterable[str]) -> Iterator[str]:
    """Yield the relative paths that a script reads, but neither gets nor makes."""
    there = {str(PurePosixPath(one)) for one in sent}
    folders = {str(parent) for one in there for parent in PurePosixPath(one).parents}
    for one in script.reads:
        is_own = os.path.normpath(one.what) in there | folders or may_make(script, one.what)
        if not is_own and not one.what.startswith(("/", "~")):
            yield one.what


def _placed(folder: str | None, names: Iterable[str]) -> dict[str, str]:
    """Return the path of each file in a folder on the nodes; empty without a folder."""
    return {} if folder is None else {one: str(PurePosixPath(folder, one)) for one in names}


def _absolute(needs: Iterable[Need], *, is_certain: bool = False) -> list[str]:
    return [
        one.what
        for one in needs
        if one.what.startswith(("/", "~")) and (one.is_certain or not is_certain)
    ]
