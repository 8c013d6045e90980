"""Known python: what an interpreter loads, as one agent of a run has learned for all of them.

An agent has torch imported when a driver first looks at it, and keeps the answer in its state
directory until something is installed. Nearly every file of tests has agents of its own, whose
first launch would wait for it again. Those of the demo, SLURM and ``test_install.py`` begin with
nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from jupyter_mntrain.agent.machine.software.loaded import LoadedBook
from jupyter_mntrain.model.files import write_atomically
from tests.waiting import PATIENCE_S

FILE = "loaded.json"


def give_known_python(state: Path, python: str) -> None:
    """Put what another agent has learned where this one keeps it, if it has nothing of its own."""
    shared = _shared(python)
    if shared is not None and shared.exists() and not (state / FILE).exists():
        write_atomically(state / FILE, shared.read_bytes())


def keep_known_python(state: Path, python: str) -> None:
    """For the others, if it holds for them."""
    shared, own = _shared(python), state / FILE
    if shared is None or shared.exists() or not own.exists():
        return
    known = LoadedBook(own).known(python)
    if known is not None and known.is_whole:
        shared.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(shared, own.read_bytes())


def give_asked_pythons(state: Path, pythons: Sequence[str]) -> None:
    """Put there what these interpreters load; the first in a run has them asked, as an agent."""
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    shared = Path(cache) / "mntrain-tests" / f"asked-{FILE}"
    shared.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{shared}.lock"):
        book = LoadedBook(shared)
        for python in pythons:
            assert book.ask(python, PATIENCE_S) is not None, f"{python} does not say what it loads"
    state.mkdir(parents=True, exist_ok=True)
    write_atomically(state / FILE, shared.read_bytes())


def _shared(python: str) -> Path | None:
    cache = os.environ.get("XDG_CACHE_HOME")  # of this run: tests/conftest.py
    name = f"{hashlib.sha256(python.encode()).hexdigest()[:8]}-{FILE}"
    return Path(cache) / "mntrain-tests" / name if cache else None
