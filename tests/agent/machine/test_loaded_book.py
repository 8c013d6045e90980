"""What interpreters load: asked in a process of its own, kept until something changes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.machine.software import loaded
from jupyter_mntrain.agent.machine.software.loaded import (
    MOST_OF_JOBS,
    Loaded,
    LoadedBook,
    load,
    waited_for_cpu_s,
)
from jupyter_mntrain.model.records.doctor.loaded import LoadedSoftware
from tests.waiting import until
from tests.wording import says

SLOW_S = 5.0


def interpreter(folder: Path, text: str) -> str:
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def with_torch(folder: Path, text: str) -> dict[str, str]:
    """An environment in which ``import torch`` runs this."""
    (folder / "torch.py").write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder)}


def test_torch_is_imported_and_cuda_is_asked(tmp_path: Path) -> None:
    torch = """
import types
print("a line of a library")
__version__ = "2.13.0+cu128"
version = types.SimpleNamespace(cuda="12.8")
cuda = types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: (2, 27, 5)))
_C = types.SimpleNamespace(
    _cuda_getArchFlags=lambda: "sm_80 sm_90", _cuda_getDeviceCount=lambda: 2
)
"""
    found = load(sys.executable, with_torch(tmp_path, torch))
    software = found.software
    assert (software.error, software.torch, software.cuda) == ("", "2.13.0+cu128", "12.8")
    assert (software.nccl, software.devices) == ("2.27.5", 2)
    assert software.architectures == ("sm_80", "sm_90")
    assert software.torch_file == str(tmp_path / "torch.py")
    assert found.site_packages is not None
    assert found.site_packages.is_dir()


@pytest.mark.parametrize(
    ("torch", "error"),
    [
        ("raise OSError('one line\\nlibc10.so: no such file')", "OSError: libc10.so: no such file"),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os.abort()", "signal 6"),
    ],
)
def test_why_torch_cannot_be_imported(tmp_path: Path, torch: str, error: str) -> None:
    assert load(sys.executable, with_torch(tmp_path, torch)).software.error == error


def test_an_interpreter_that_ends_itself_while_torch_is_imported(tmp_path: Path) -> None:
    said = load(sys.executable, with_torch(tmp_path, "import os; os._exit(7)")).software.error
    assert said
    assert says("exit code 7", said)


def test_cuda_that_does_not_start_says_why(tmp_path: Path) -> None:
    torch = """
import types
__version__ = "2.13.0"
version = types.SimpleNamespace(cuda="12.8")
def count(): raise RuntimeError("Error 802: system not yet initialized")
_C = types.SimpleNamespace(_cuda_getArchFlags=lambda: None, _cuda_getDeviceCount=count)
"""
    software = load(sys.executable, with_torch(tmp_path, torch)).software
    assert software.cuda_error == "RuntimeError: Error 802: system not yet initialized"
    assert not software.is_whole
    assert (software.nccl, software.architectures) == (None, ())


def test_a_hang_is_given_up_with_its_children(tmp_path: Path) -> None:
    python = interpreter(tmp_path, f"sleep 600 & echo $! > {tmp_path}/pid; sleep 600")
    assert load(python, patience_s=0.5).software.error
    child = int((tmp_path / "pid").read_text())

    def is_over() -> bool:
        # A container may have nobody to reap it.
        return not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"

    until(is_over, "its child ends", SLOW_S)


def test_time_in_which_it_waits_for_a_cpu_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = interpreter(tmp_path, f'sleep 1; exec {sys.executable} "$@"')
    environment = with_torch(
        tmp_path, "__version__ = '2.9'; import types\nversion = types\ntypes.cuda = None\n"
    )
    monkeypatch.setattr(loaded, "waited_for_cpu_s", lambda _: 3600.0)
    assert load(python, environment, patience_s=0.1).software.torch == "2.9"


def test_what_is_no_interpreter_has_a_reason(tmp_path: Path) -> None:
    assert load(str(tmp_path / "none")).software.error
    found = load(interpreter(tmp_path, "echo hello >&2; exit 2")).software
    assert (found.error, found.has_started) == ("hello", False)


class Asked:
    """Counts how often an interpreter is asked; answers when it is told to."""

    def __init__(self, site: Path, **fields: str) -> None:
        self.times, self.may = 0, threading.Event()
        self.environments: list[dict[str, str]] = []
        self.may.set()
        self._site, self._fields = site, fields

    def __call__(self, python: str, environment: Mapping[str, str]) -> Loaded:
        self.times += 1
        self.environments.append(dict(environment))
        self.may.wait(SLOW_S)
        software = LoadedSoftware(python=python, torch="2.13.0")
        return Loaded(msgspec.structs.replace(software, **self._fields), self._site)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def test_it_is_asked_once_until_a_package_is_installed(tmp_path: Path, site: Path) -> None:
    path = tmp_path / "loaded.json"
    ask = Asked(site)
    book = LoadedBook(path, {}, ask=ask)
    assert book.known(sys.executable) is None
    for _ in range(2):
        found = book.ask(sys.executable, SLOW_S)
        assert found is not None
        assert found.torch == "2.13.0"
        book.refresh(sys.executable)
    assert ask.times == 1
    again = LoadedBook(path, {}, ask=ask)
    assert again.known(sys.executable) == found
    (site / "new").mkdir()
    os.utime(site, (1, 1))
    assert again.known(sys.executable) is None
    again.refresh(sys.executable)
    until(lambda: again.known(sys.executable) is not None, "it is asked", SLOW_S)
    assert ask.times == 2


def test_other_paths_of_libraries_are_another_environment(tmp_path: Path, site: Path) -> None:
    path, ask = tmp_path / "loaded.json", Asked(site)
    LoadedBook(path, {}, ask=ask).ask(sys.executable, SLOW_S)
    assert LoadedBook(path, {"LD_LIBRARY_PATH": "/x"}, ask=ask).known(sys.executable) is None


def test_with_a_jobs_own_loaders_it_is_asked_again(tmp_path: Path, site: Path) -> None:
    ask, given = Asked(site), {"PYTHONPATH": "/mine"}
    book = LoadedBook(tmp_path / "loaded.json", {"HOME": "/home/ann"}, ask=ask)
    book.ask(sys.executable, SLOW_S)
    assert book.known(sys.executable, given) is None
    assert book.ask(sys.executable, SLOW_S, given) is not None
    assert ask.environments == [{"HOME": "/home/ann"}, {"HOME": "/home/ann", **given}]
    assert book.known(sys.executable, given) is not None
    assert book.known(sys.executable, {"PYTHONPATH": "/other"}) is None
    assert ask.times == 2


def test_of_jobs_own_loaders_only_the_last_are_kept(tmp_path: Path, site: Path) -> None:
    book = LoadedBook(tmp_path / "loaded.json", {}, ask=Asked(site))
    asked = [{"PYTHONPATH": f"/{number}"} for number in range(MOST_OF_JOBS + 2)]
    for given in ({}, *asked):
        book.ask(sys.executable, SLOW_S, given)
    kept = [book.known(sys.executable, given) is not None for given in ({}, *asked)]
    assert kept == [True, False, False, *[True] * MOST_OF_JOBS]


def test_nobody_waits_longer_than_wanted_and_one_asks_for_all(tmp_path: Path, site: Path) -> None:
    ask = Asked(site)
    ask.may.clear()
    book = LoadedBook(tmp_path / "loaded.json", {}, ask=ask)
    assert book.ask(sys.executable) is None
    assert book.ask(sys.executable) is None
    ask.may.set()
    assert book.ask(sys.executable, SLOW_S) is not None
    assert ask.times == 1


def test_a_failure_is_asked_again_by_the_doctor_and_not_in_the_background(
    tmp_path: Path, site: Path
) -> None:
    ask = Asked(site, error="ImportError")
    path = tmp_path / "loaded.json"
    LoadedBook(path, {}, ask=ask).ask(sys.executable, SLOW_S)
    kept = msgspec.json.decode(path.read_bytes())
    kept[sys.executable]["time_s"] -= 3600
    path.write_bytes(msgspec.json.encode(kept))
    book = LoadedBook(path, {}, ask=ask)
    book.refresh(sys.executable)
    assert ask.times == 1
    book.ask(sys.executable, SLOW_S)
    assert ask.times == 2


def test_a_damaged_file_counts_as_none(tmp_path: Path, site: Path) -> None:
    path = tmp_path / "loaded.json"
    path.write_text("{")
    assert LoadedBook(path, {}, ask=Asked(site)).ask(sys.executable, SLOW_S) is not None


def test_the_wait_for_cpu_time_is_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("1500000000 42500000000 77\n")
    assert waited_for_cpu_s(7, tmp_path) == 42.5
    assert waited_for_cpu_s(8, tmp_path) == 0.0
    assert 0.0 <= waited_for_cpu_s(os.getpid()) < 3600.0
