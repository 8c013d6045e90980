"""Loaded software: what jobs' interpreters load when they import torch, stored on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from jupyter_mntrain.agent.machine.linux import boot_id
from jupyter_mntrain.agent.machine.software.versions import ask_python
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.records.doctor.machine import LOADERS
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.telemetry.kernel_files import kernel_text

# Modules: which of those that a script imports an interpreter of jobs does not find.


KEPT_S = 60.0
"""How long modules that a job's interpreter found are cached."""

_MODULES_QUERY = r"""
import importlib.util, json, os, re
MADE_LATER = r"import \*|__getattr__|globals\(\)|sys\.modules|exec\(|setattr\("
def text_of(place):
    with open(place, encoding="utf-8") as file: return file.read()
def is_in(folders, name):
    return any(one.split(".")[0] == name for folder in folders for one in os.listdir(folder))
def lacks_name(found, inner, name):
    place, folders = found.origin, list(found.submodule_search_locations or ())
    for one in inner:
        places = [os.path.join(folder, one, "__init__.py") for folder in folders]
        places += [os.path.join(folder, one + ".py") for folder in folders]
        there = next(filter(os.path.isfile, places), None)
        if there is None:
            return not is_in(folders, one) and not re.search(MADE_LATER, text_of(place))
        place, folders = there, [os.path.dirname(there)] * there.endswith("__init__.py")
    if is_in(folders, name): return False
    return not re.search(r"\b%s\b|%s" % (re.escape(name), MADE_LATER), text_of(place))
def lacks(asked):
    module, _, name = asked.partition(":")
    first, *inner = module.split(".")
    try:
        found = importlib.util.find_spec(first)
        return lacks_name(found, inner, name) if found and name else not (found or name)
    except Exception: return False
print(json.dumps({"lacking": [one for one in ASKED if lacks(one)]}))
"""

_CONFIRMATION = r"""
import contextlib, importlib, json, sys
def is_there(asked):
    module, _, name = asked.partition(":")
    try:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(module + "." + name)
        return True
    except ImportError: return False
    except BaseException: return True
with contextlib.redirect_stdout(sys.stderr): found = [one for one in ASKED if not is_there(one)]
print(json.dumps({"lacking": found}))
"""

_NAME = re.compile(r"\w+|[\w.]+:\w+")


class ModuleSearch:
    """Looks for modules, and caches found ones for ``doctor.kept_s``: starting an interpreter is
    most of what a launch asks of a node. Safe from any thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: dict[tuple[str, frozenset[tuple[str, str]], str], float] = {}

    def lacking(
        self, python: str, names: Sequence[str], loaders: Mapping[str, str]
    ) -> tuple[str, ...] | None:
        """Like :func:`lacking_modules`."""
        now_s, given = self._clock(), frozenset(loaders.items())
        known = {one: at_s for one, at_s in self._found.items() if now_s - at_s < KEPT_S}
        asked = [name for name in names if (python, given, name) not in known]
        lacking = lacking_modules(python, asked, loaders) if asked else ()
        if lacking is not None:
            new = {(python, given, name): now_s for name in asked if name not in lacking}
            self._found = known | new
        return lacking


def lacking_modules(
    python: str, names: Sequence[str], loaders: Mapping[str, str]
) -> tuple[str, ...] | None:
    """Return which modules are missing; ``None`` if the interpreter does not run. Blocks.

    Nothing is imported, unless the text of a module does not have a name: packages make names, and
    whole modules, in many ways, so only its import can say that it lacks one.

    Args:
        names: modules by their first names, and names in modules: ``torch.distributed:all_reduce``.
        loaders: variables that decide what it finds, besides the agent's own.
    """
    # To look for what lies in a package, Python would import that.
    names = [name for name in names if _NAME.fullmatch(name)]
    environment = {**os.environ, **loaders}
    try:
        found = ask_python(python, _MODULES_QUERY.replace("ASKED", repr(names)), environment)
    except SpecError:
        return None
    lacking = tuple(found["lacking"])
    maybe = [one for one in lacking if ":" in one]
    if not maybe:
        return lacking
    try:
        told = ask_python(python, _CONFIRMATION.replace("ASKED", repr(maybe)), environment)
        lost = set(told["lacking"])
    except SpecError:  # it takes too long, or ends the interpreter: nobody knows
        lost = set()
    return tuple(one for one in lacking if one in lost or ":" not in one)


# Torch question: asks an interpreter of jobs what it has once it imports torch; takes seconds.
#
# The agent itself never imports torch. Metadata of packages tells what was installed; PYTHONPATH,
# LD_LIBRARY_PATH and a driver decide what is loaded.


PATIENCE_S = 180.0
"""An interpreter that has not imported torch after this never will."""

SET_BY_LAUNCH: Final = frozenset({"CUDA_VISIBLE_DEVICES"})
"""Variables of the agent that its jobs do not get as they are."""

MARK: Final = "mntrain-loaded "
"""Begins the line of the answer: imports may print others before and after."""

_QUERY: Final = """
import ctypes, glob, json, os, sys, sysconfig
os.nice(19)
try: ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG: it ends with the agent
except Exception: pass
told = {"site": sysconfig.get_path("purelib")}
def last(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[-1]}".rstrip(": ")
try:
    import torch
    told |= {"torch": str(torch.__version__), "torch_file": str(torch.__file__)}
    told["cuda"] = torch.version.cuda
except BaseException as error:
    told["error"] = last(error)
else:
    try: told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    except Exception: pass
    if told["cuda"]:
        try: told["architectures"] = (torch._C._cuda_getArchFlags() or "").split()
        except Exception: pass
        try:
            told["devices"] = torch._C._cuda_getDeviceCount()
            if not told["devices"] and glob.glob("/dev/nvidia[0-9]*"):
                torch.cuda.init()  # says why
        except Exception as error: told["cuda_error"] = last(error)
try:
    import importlib.metadata
    told["transformers"] = importlib.metadata.version("transformers")
except Exception: pass
print("\\nMARK" + json.dumps(told), flush=True)
os._exit(0)
""".replace("MARK", MARK)


class Loaded(NamedTuple):
    """What was loaded, and the package folder whose time tells whether this is up to date."""

    software: LoadedSoftware
    site_packages: Path | None = None


def load(
    python: str, environment: Mapping[str, str] = os.environ, *, patience_s: float = PATIENCE_S
) -> Loaded:
    """Ask an interpreter what it loads, at the lowest priority. Blocks.

    Args:
        environment: of the agent, and so of its jobs.
        patience_s: an interpreter that takes longer is given up. Time in which it waits for a CPU,
            as others need it, does not count: that says nothing of it.
    """
    try:
        asked = subprocess.Popen(
            [python, "-c", _QUERY],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: value for name, value in environment.items() if name not in SET_BY_LAUNCH},
            start_new_session=True,
        )
    except OSError as error:
        return _failed(python, f"{python} does not run: {error.strerror}", has_started=False)
    with asked:
        begun_s, left_s = time.monotonic(), patience_s
        while True:
            try:
                out, errors = asked.communicate(timeout=left_s)
                break
            except subprocess.TimeoutExpired:
                taken_s = time.monotonic() - begun_s - waited_for_cpu_s(asked.pid)
                left_s = patience_s - taken_s
                if left_s > 0.0:
                    continue
                with suppress(ProcessLookupError):
                    os.killpg(asked.pid, signal.SIGKILL)
                return _failed(python, f"importing torch took over {patience_s:g} s")
    return _read_answer(python, out.decode(errors="replace"), errors, asked.returncode)


def waited_for_cpu_s(pid: int, proc: Path = Path("/proc")) -> float:
    """Return how long a process's main thread was ready to run but had no CPU."""
    words = kernel_text(proc / str(pid) / "schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _read_answer(python: str, out: str, errors: bytes, code: int) -> Loaded:
    found = [line for line in out.splitlines() if line.startswith(MARK)]
    if not found:
        last = errors.decode(errors="replace").strip().splitlines()
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        why = shown_line(last[-1]) if last and code > 0 else ended
        return _failed(python, why, has_started=False)
    told: dict[str, Any] = json.loads(found[-1].removeprefix(MARK))
    site = told.pop("site")
    software = msgspec.convert({**told, "python": python}, LoadedSoftware)
    return Loaded(software, Path(site))


def _failed(python: str, error: str, *, has_started: bool = True) -> Loaded:
    return Loaded(LoadedSoftware(python=python, error=error, has_started=has_started))


# Loaded book: what interpreters of jobs have loaded, kept on disk until something is installed.


log = logging.getLogger("mntrain.agent")

MOST_OF_JOBS: Final = 32
_OF_JOB: Final = "job "

FAILED_AGE_S = 60.0
"""What failed is asked again after this: loading a driver changes no file."""

NO_LOADERS: Final[Mapping[str, str]] = MappingProxyType({})

Stamp = tuple[str, ...]


class _LoadedAnswer(Record, frozen=True):
    """What was loaded, where the packages are, and what the answer depends on."""

    software: LoadedSoftware
    site_packages: str
    stamp: Stamp
    time_s: float


class LoadedBook:
    """Caches what interpreters load. Each is asked by one thread at a time.

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
        """Ask an interpreter in the background, if something has changed. Returns at once."""
        if not self._holds(self._kept.get(python)):
            self.ask(python)

    def known(self, python: str, loaders: Mapping[str, str] = NO_LOADERS) -> LoadedSoftware | None:
        """Return what an interpreter loads; ``None`` if it was not asked since something changed.

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
        """Ask an interpreter unless the answer is known; ``None`` if that takes too long."""
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
    """Return the cache key of an answer."""
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
