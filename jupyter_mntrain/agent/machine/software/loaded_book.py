"""Loaded book: what interpreters of jobs have loaded, kept on disk until something is installed."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from jupyter_mntrain.agent.machine.software.torch_question import Loaded, load
from jupyter_mntrain.agent.membership.node_id import boot_id
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware

log = logging.getLogger("mntrain.agent")

FAILED_AGE_S = tunables.seconds("doctor.loaded_failure_age_s")

LOADERS: Final = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that decide what is loaded."""

Stamp = tuple[str, ...]


class _LoadedAnswer(Record, frozen=True):
    """What was loaded, where its packages lie, and what it depends on."""

    software: LoadedSoftware
    site_packages: str
    stamp: Stamp
    time_s: float


class LoadedBook:
    """Knows what interpreters load, or has them asked, each by one thread at a time.

    Args:
        path: the file that keeps it.
        environment: of the agent, and so of its jobs.
        ask: loads torch; blocks for seconds.
    """

    def __init__(
        self,
        path: Path,
        environment: Mapping[str, str] = os.environ,
        *,
        ask: Callable[[str], Loaded] = load,
    ) -> None:
        self._path, self._environment, self._load = path, environment, ask
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Event] = {}
        self._kept = _read(path)

    def refresh(self, python: str) -> None:
        """Have it asked if it was not since something changed. Returns at once."""
        if not self._holds(self._kept.get(python)):
            self.ask(python)

    def known(self, python: str) -> LoadedSoftware | None:
        """What it loads; ``None`` if it was not asked since something changed."""
        kept = self._kept.get(python)
        if kept is None or not self._holds(kept):
            return None
        # What ails it may be mended by what no stamp shows, like loading a driver.
        is_old = not kept.software.is_whole and time.time() - kept.time_s > FAILED_AGE_S
        return None if is_old else kept.software

    def ask(self, python: str, patience_s: float = 0.0) -> LoadedSoftware | None:
        """Have it asked unless it is known. Waits so long; ``None`` if that is not enough."""
        if (found := self.known(python)) is not None:
            return found
        with self._lock:
            done = self._asking.get(python)
            if done is None:
                done = self._asking[python] = threading.Event()
                threading.Thread(target=self._ask, args=(python, done), daemon=True).start()
        return self.known(python) if done.wait(patience_s) else None

    def _ask(self, python: str, done: threading.Event) -> None:
        try:
            found = self._load(python)
            site = str(found.site_packages or "")
            kept = _LoadedAnswer(found.software, site, self._stamp(python, site), time.time())
            self._kept = {**self._kept, python: kept}
            write_atomically(self._path, msgspec.json.encode(self._kept))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("could not ask %s what it loads: %s", python, error)
        finally:
            with self._lock:
                del self._asking[python]
            done.set()

    def _holds(self, kept: _LoadedAnswer | None) -> bool:
        if kept is None:
            return False
        return kept.stamp == self._stamp(kept.software.python, kept.site_packages)

    def _stamp(self, python: str, site_packages: str) -> Stamp:
        of_loaders = (self._environment.get(name, "") for name in LOADERS)
        return (boot_id(), _changed(python), _changed(site_packages), *of_loaders)


def _changed(path: str) -> str:
    try:
        return str(Path(path).stat().st_mtime_ns) if path else ""
    except OSError:
        return ""


def _read(path: Path) -> dict[str, _LoadedAnswer]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _LoadedAnswer])
    except (OSError, msgspec.MsgspecError):  # it is asked again
        return {}
