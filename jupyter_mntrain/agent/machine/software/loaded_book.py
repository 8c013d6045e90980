"""Loaded book: what interpreters of jobs have loaded, kept on disk until something is installed."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from jupyter_mntrain.agent.machine.software.torch_question import Loaded, load
from jupyter_mntrain.agent.membership.node_id import boot_id
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import LOADERS

log = logging.getLogger("mntrain.agent")

MOST_OF_JOBS: Final = 32
_OF_JOB: Final = "job "

FAILED_AGE_S = tunables.seconds("doctor.loaded_failure_age_s")

NO_LOADERS: Final[Mapping[str, str]] = MappingProxyType({})

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
        ask: Callable[[str, Mapping[str, str]], Loaded] = load,
    ) -> None:
        self._path, self._environment, self._load = path, environment, ask
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Event] = {}
        self._kept = _read(path)

    def refresh(self, python: str) -> None:
        """Have it asked if it was not since something changed. Returns at once."""
        if not self._holds(self._kept.get(python)):
            self.ask(python)

    def known(self, python: str, loaders: Mapping[str, str] = NO_LOADERS) -> LoadedSoftware | None:
        """What it loads; ``None`` if it was not asked since something changed.

        Args:
            loaders: :data:`LOADERS` that a job sets itself.
        """
        kept = self._kept.get(_key(python, loaders))
        if kept is None or not self._holds(kept, loaders):
            return None
        # What ails it may be mended by what no stamp shows, like loading a driver.
        is_old = not kept.software.is_whole and time.time() - kept.time_s > FAILED_AGE_S
        return None if is_old else kept.software

    def ask(
        self,
        python: str,
        patience_s: float = 0.0,
        loaders: Mapping[str, str] = NO_LOADERS,
    ) -> LoadedSoftware | None:
        """Have it asked unless it is known. Waits so long; ``None`` if that is not enough."""
        if (found := self.known(python, loaders)) is not None:
            return found
        key = _key(python, loaders)
        with self._lock:
            done = self._asking.get(key)
            if done is None:
                done = self._asking[key] = threading.Event()
                asked = (python, loaders, done)
                threading.Thread(target=self._ask, args=asked, daemon=True).start()
        return self.known(python, loaders) if done.wait(patience_s) else None

    def _ask(self, python: str, loaders: Mapping[str, str], done: threading.Event) -> None:
        key = _key(python, loaders)
        try:
            found = self._load(python, {**self._environment, **loaders})
            site = str(found.site_packages or "")
            stamp = self._stamp(python, site, loaders)
            kept = _LoadedAnswer(found.software, site, stamp, time.time())
            others = {name: one for name, one in self._kept.items() if name != key}
            # Those with loaders of their own are kept for a while: each job may have others.
            of_jobs = [name for name in others if name.startswith(_OF_JOB)]
            for name in of_jobs[: max(0, len(of_jobs) - MOST_OF_JOBS + 1)]:
                del others[name]
            self._kept = {**others, key: kept}
            write_atomically(self._path, msgspec.json.encode(self._kept))
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            log.warning("could not ask %s what it loads: %s", python, error)
        finally:
            with self._lock:
                del self._asking[key]
            done.set()

    def _holds(self, kept: _LoadedAnswer | None, loaders: Mapping[str, str] = NO_LOADERS) -> bool:
        if kept is None:
            return False
        return kept.stamp == self._stamp(kept.software.python, kept.site_packages, loaders)

    def _stamp(self, python: str, site_packages: str, loaders: Mapping[str, str]) -> Stamp:
        given = {**self._environment, **loaders}
        of_loaders = (given.get(name, "") for name in LOADERS)
        return (boot_id(), _changed(python), _changed(site_packages), *of_loaders)


def _key(python: str, loaders: Mapping[str, str]) -> str:
    """By which an answer is kept."""
    if not loaders:
        return python
    given = json.dumps([python, *sorted(loaders.items())])
    return _OF_JOB + hashlib.sha256(given.encode()).hexdigest()[:16]


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
