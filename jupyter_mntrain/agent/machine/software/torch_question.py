"""Torch question: asks an interpreter of jobs what it has once it imports torch; takes seconds.

The agent itself never imports torch. Metadata of packages tells what was installed; PYTHONPATH,
LD_LIBRARY_PATH and a driver decide what is loaded.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from jupyter_mntrain.model.text.foreign import shown_line
from jupyter_mntrain.telemetry.kernel_files import kernel_text

PATIENCE_S = tunables.seconds("doctor.loaded_timeout_s")

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
    """What was loaded, and the folder of packages whose time says whether it still holds."""

    software: LoadedSoftware
    site_packages: Path | None = None


def load(
    python: str, environment: Mapping[str, str] = os.environ, *, patience_s: float = PATIENCE_S
) -> Loaded:
    """Ask an interpreter, at the lowest priority. Blocks.

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
    return _read(python, out.decode(errors="replace"), errors, asked.returncode)


def waited_for_cpu_s(pid: int, proc: Path = Path("/proc")) -> float:
    """How long a process was ready to run and did not, in its first thread."""
    words = kernel_text(proc / str(pid) / "schedstat").split()
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


def _read(python: str, out: str, errors: bytes, code: int) -> Loaded:
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
