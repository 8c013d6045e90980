"""Workplace: checks whether this node has the folder and the interpreter that a job runs in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jupyter_mntrain import __version__
from jupyter_mntrain.agent.machine.software.loaded import NO_LOADERS, LoadedBook, ModuleSearch
from jupyter_mntrain.agent.machine.software.pythons import PythonReader, activated, find_python
from jupyter_mntrain.agent.machine.software.versions import Installed, as_loaded
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.node import FoundWorkplace, Versions, Workplace
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.plan.software.workplaces import refuse_lacking
from jupyter_mntrain.telemetry.gpus import Driver

LOADED_INTERVAL_S = 60.0
"""An agent asks its jobs' interpreter what it loads so long after its start, and looks so often
whether that may have changed: importing torch takes seconds of a core."""


class Workplaces:
    """Looks for the folders and interpreters that jobs run in.

    Args:
        python: interpreter of jobs that ask for none.
        driver: gives the GPUs' driver.
        state: directory for the file that keeps what interpreters load.
    """

    def __init__(self, python: str, driver: Callable[[], Driver | None], state: Path) -> None:
        self._python = python
        self._reader = PythonReader(driver)
        self._loaded = LoadedBook(state / "loaded.json")
        self._modules = ModuleSearch()

    def loaded(
        self,
        python: str | None,
        patience_s: float | None = None,
        loaders: Mapping[str, str] = NO_LOADERS,
    ) -> LoadedSoftware | None:
        """Return what an interpreter loads when it imports torch; ``None`` while that is unknown.

        Args:
            python: as a job asks for it; ``None`` = that of jobs that ask for none.
            patience_s: have it asked, and wait for the answer so long; ``None`` = do not.
            loaders: variables that decide what is loaded, and that the job sets itself.
        """
        try:
            path = self._python if python is None else str(find_python(python))
        except RefusedError as error:
            return LoadedSoftware(python=python or "", error=error.problem.cause)
        if patience_s is None:
            return self._loaded.known(path, loaders)
        return self._loaded.ask(path, patience_s, loaders)

    def usual(self) -> LoadedSoftware | None:
        """Return what the default interpreter loads, if that is known."""
        return self._loaded.known(self._python)

    def lacking(
        self,
        python: str | None,
        modules: Sequence[str],
        loaders: Mapping[str, str] = NO_LOADERS,
    ) -> tuple[str, ...] | None:
        """Return which modules an interpreter lacks; it is given as for :meth:`loaded`."""
        if not modules:
            return None
        try:
            path = self._python if python is None else str(find_python(python))
        except RefusedError:
            return None
        return self._modules.lacking(path, modules, loaders)

    def load_anew(self) -> None:
        """Ask the default interpreter again what it loads, if that may have changed."""
        self._loaded.refresh(self._python)

    def look(self, asked: Workplace) -> FoundWorkplace:
        """Return what the node has of a workplace. Blocks, for seconds on a cold disk."""
        lacks = []
        if asked.workdir is not None:
            try:
                refuse_no_folder(in_home(asked.workdir))
            except RefusedError as error:
                lacks.append(error.problem)
        try:
            python = self._python if asked.python is None else str(find_python(asked.python))
            installed = self._reader.read(python)
        except MntrainError as error:
            return FoundWorkplace(lacks=(*lacks, error.problem))
        lacks += _lacking(python, installed, asked)
        environment = {**os.environ, **activated(Path(python))} if asked.python else os.environ
        self._loaded.refresh(python)  # the next launch, and the queue, know what it loads
        versions = as_loaded(installed.with_tools(environment), self._loaded.known(python))
        return FoundWorkplace(python=python, versions=versions, lacks=tuple(lacks))

    async def checked(
        self, node: str, asked: Workplace | None, known: Versions | None
    ) -> Versions | None:
        """Return what is installed for a job's interpreter.

        Args:
            node: this one's name.
            asked: ``None`` = the job runs in what the agent has.
            known: what the agent has, as of its start.

        Raises:
            RefusedError: the node lacks what the job runs in.
        """
        if asked is None and (known is None or known.torch is not None):
            return known
        # torch may have been installed since.
        found = await asyncio.to_thread(self.look, asked or Workplace())
        refuse_lacking([(node, found)])
        return found.versions


def _lacking(python: str, installed: Installed, asked: Workplace) -> list[Problem]:
    found = []
    if installed.versions.torch is None:
        found.append(_missing("torch", python, "torch"))
    if asked.trains and not installed.has_package:
        what = "jupyter-mntrain, which the built-in trainer is part of,"
        found.append(_missing(what, python, f"jupyter_mntrain-{__version__}-py3-none-any.whl"))
    return found


def _missing(what: str, python: str, package: str) -> Problem:
    return Problem(
        kind=Kind.NO_MODULE,
        cause=f"{what} is not installed for {python}",
        fix=fix_of(Kind.NO_MODULE, "interpreter", python=python, package=package),
    )


def refuse_no_folder(path: Path) -> None:
    """Refuse a folder in which the agent's user cannot run anything.

    Raises:
        RefusedError: it does not exist, or may not be entered.
    """
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
    elif not os.access(path, os.R_OK | os.X_OK):
        what = "may not be entered by the agent's user"
    else:
        return
    raise RefusedError(
        f"--workdir {path}: {what}",
        kind=Kind.NO_FILE,
        fix="mount it, or correct the path; or send the files: --project DIR",
    )
