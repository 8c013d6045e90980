"""Workplace: the folder and the interpreter that a job asks for, found or missed on this node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.software.loaded import MARK
from jupyter_mntrain.agent.machine.software.pythons import (
    PythonReader,
    find_python,
    has_safe_path,
    python_of,
)
from jupyter_mntrain.agent.machine.software.workplace import Workplaces
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import Workplace
from jupyter_mntrain.telemetry.gpus import Driver
from tests.waiting import until


def interpreter(folder: Path) -> Path:
    """An environment's, which is this one."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """An interpreter without packages."""
    folder = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


def test_an_interpreter_is_found_by_path_folder_project_and_name(tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env")
    assert find_python(str(python)) == find_python(str(tmp_path / "env")) == python
    assert find_python(f"conda:{tmp_path}/env") == python
    in_project = interpreter(tmp_path / "lm" / ".venv")
    assert find_python(f"uv:{tmp_path}/lm") == in_project
    home = {"HOME": str(tmp_path)}
    named = interpreter(tmp_path / "miniforge3" / "envs" / "lm")
    assert find_python("conda:lm", home) == named
    listed = interpreter(tmp_path / "elsewhere" / "lm")
    (tmp_path / ".conda").mkdir()
    (tmp_path / ".conda" / "environments.txt").write_text(f"/gone/x\n{tmp_path}/elsewhere/lm\n")
    assert find_python("conda:lm", home) == listed
    other = {"HOME": "/nowhere", "CONDA_ENVS_PATH": f"{tmp_path}/miniforge3/envs"}
    assert find_python("conda:lm", other) == named


@pytest.mark.parametrize("asked", ["{}/gone", "uv:{}", "conda:{}", "conda:gone", "{}/file", "{}"])
def test_an_interpreter_that_is_not_there_is_missed_by_its_name(tmp_path: Path, asked: str) -> None:
    (tmp_path / "file").write_text("")
    name = asked.format(tmp_path)
    with pytest.raises(RefusedError, match=name) as caught:
        find_python(name, {"HOME": str(tmp_path)})
    assert caught.value.kind is Kind.NO_PYTHON
    assert caught.value.fix


def test_the_environment_of_an_interpreter_comes_first_and_the_jobs_own_wins(
    tmp_path: Path,
) -> None:
    python = interpreter(tmp_path / "env")
    (tmp_path / "env" / "conda-meta").mkdir()
    spec = JobSpec(entry=("a.py",), participants=(), python=f"conda:{tmp_path}/env")
    found, variables = python_of(spec, "/usual/python")
    assert found == str(python)
    assert variables["PATH"].split(os.pathsep)[0] == str(python.parent)
    assert variables["CONDA_PREFIX"] == str(tmp_path / "env")
    own = JobSpec(entry=(), participants=(), python=spec.python, environment={"PATH": "/mine"})
    assert python_of(own, "")[1]["PATH"] == "/mine"
    assert python_of(JobSpec(entry=(), participants=()), "/usual/python") == ("/usual/python", {})
    program = JobSpec(entry=("x",), participants=(), torchrun_arguments=("--no-python",))
    assert python_of(program, "/usual/python")[1]["PATH"].startswith("/usual" + os.pathsep)


def test_all_that_a_node_lacks_is_told_at_once(tmp_path: Path, bare: Path) -> None:
    places = Workplaces(sys.executable, lambda: None, tmp_path)
    found = places.look(Workplace(workdir=str(tmp_path), python=sys.executable, trains=True))
    assert (found.lacks, found.python) == ((), sys.executable)
    assert found.versions is not None
    assert found.versions.torch
    lacking = places.look(Workplace(workdir=f"{tmp_path}/gone", python=str(bare), trains=True))
    assert [one.kind for one in lacking.lacks] == [Kind.NO_FILE, Kind.NO_MODULE, Kind.NO_MODULE]
    assert all(str(bare) in one.fix for one in lacking.lacks[1:])
    assert len(places.look(Workplace(python=str(bare))).lacks) == 1
    assert places.look(Workplace(python="/bin/false")).lacks[0].kind is Kind.NO_PYTHON


def test_nccl_is_the_one_that_is_loaded_once_that_is_known(tmp_path: Path) -> None:
    """Asked of a job's own interpreter in the background, when a launch first names it."""
    program = tmp_path / "python"
    asked, may_answer = tmp_path / "asked", tmp_path / "may-answer"
    # A folder of its own: an answer is forgotten when that of the packages changes, as /tmp does.
    (tmp_path / "site").mkdir()
    answer = json.dumps({"site": str(tmp_path / "site"), "torch": "2.13.0", "nccl": "2.99.1"})
    program.write_text(
        f"""#!/bin/sh
case "$*" in
*{MARK.strip()}*)
    touch {asked}
    until [ -e {may_answer} ]; do sleep 0.05; done
    echo '{MARK}{answer}' ;;
*) exec {sys.executable} "$@" ;;
esac
"""
    )
    program.chmod(0o755)
    places = Workplaces(sys.executable, lambda: None, tmp_path)
    first = places.look(Workplace(python=str(program))).versions
    assert first is not None
    assert first.nccl != "2.99.1"
    may_answer.touch()
    until(lambda: places.loaded(str(program)), "it to be asked")
    assert asked.exists()
    found = places.look(Workplace(python=str(program))).versions
    assert found is not None
    assert (found.nccl, found.torch) == ("2.99.1", first.torch)


def test_what_was_installed_meanwhile_is_read_again(bare: Path) -> None:
    driver: list[Driver] = []
    reader = PythonReader(driver=lambda: driver[0] if driver else None)
    first = reader.read(str(bare))
    assert first.versions.torch is None
    assert reader.read(str(bare)) is first
    package = first.site_packages / "torch-2.9.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n")
    assert reader.read(str(bare)).versions.torch == "2.9.0"
    driver.append(Driver("570.1", "12.8"))
    found = reader.read(str(bare)).versions
    assert (found.driver, found.driver_cuda) == ("570.1", "12.8")


@pytest.mark.parametrize(
    ("name", "has"), [("python3.10", False), ("python3.11", True), ("x", True)]
)
def test_only_a_newer_python_knows_the_safe_path(tmp_path, name: str, has: bool):
    (tmp_path / name).touch()
    (tmp_path / "python").symlink_to(name)
    assert has_safe_path(str(tmp_path / "python")) is has
