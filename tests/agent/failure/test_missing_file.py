"""Missing file: the fix says what is known of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_mntrain.agent.failure.rank_end import RankEnding
from jupyter_mntrain.agent.failure.torchrun_log import Failure
from jupyter_mntrain.launch.project.tree import BLOBS, Tree, blob_path, encode_tree, sha256_of
from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.telemetry.startup.exit_record import ExitRecord, Raised

UNKNOWN = fix_of(Kind.NO_FILE)


def told(
    tmp_path: Path,
    named: str,
    *arguments: str,
    has_project: bool = True,
    folder: str = "",
    text: str = "[Errno 2] No such file or directory: {!r}",
    is_of_hydra: bool = False,
) -> str:
    attempt = tmp_path / "jobs" / "j1" / "attempt-1"
    attempt.mkdir(parents=True)
    content = encode_tree(Tree(files=(), left_out=("data", "a.bin")))
    sha256 = sha256_of(content)
    path = blob_path(tmp_path / BLOBS, sha256)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    command = {
        "directory": folder or str(attempt / "work"),
        "project": sha256 if has_project else None,
        "argv": ("python", "-m", "torch.distributed.run", "--nnodes=1", "a.py", *arguments),
    }
    (attempt / "command.json").write_text(json.dumps(command))
    named = named.replace("WORK", str(attempt / "work"))
    message = text.format(named)
    if is_of_hydra:  # it catches the exception, and exits
        record = ExitRecord(pid=7, monotonic_s=1.0, is_over=True)
        lines = (message, "Set the environment variable HYDRA_FULL_ERROR=1 for a stack trace.")
        problem = RankEnding(attempt, Rank(0), 0, record, Failure(0, 1), lines).problem()
    else:
        raised = Raised("FileNotFoundError", "builtins", message, monotonic_s=1.0)
        record = ExitRecord(pid=7, monotonic_s=1.0, is_over=True, escaped=raised)
        problem = RankEnding(attempt, Rank(0), 0, record, None, ()).problem()
    assert problem is not None
    return problem.fix


@pytest.mark.parametrize("named", ["data/train.bin", "./data/train.bin", "WORK/data/train.bin"])
def test_a_file_that_was_left_out_is_named_with_what_sends_it(tmp_path: Path, named: str):
    assert told(tmp_path, named) == fix_of(Kind.NO_FILE, "left out", path="data/train.bin")


@pytest.mark.parametrize("has_project", [True, False])
def test_a_file_that_was_never_sent_is_named_too(tmp_path: Path, has_project: bool):
    found = told(tmp_path, "x/train.bin", has_project=has_project)
    assert found == fix_of(Kind.NO_FILE, "unsent", path="x/train.bin")


@pytest.mark.parametrize(
    ("named", "arguments", "text"),
    [
        ("x/t.json", (), "Unable to find 'WORK/{}'"),  # datasets
        ("x/t.json", ("--train_file", "x/t.json"), "Directory {} not found"),
        ("x/t.json", ("--train_file=x/t.json",), "No such file or directory: {}"),  # safetensors
        ("x/t.parquet", ("data.path=x/t.parquet",), "{}"),  # pyarrow
        ("./model", ("--model", "./model"), "Repo id must use alphanumeric chars: '{}'."),
        ("model", ("--model", "model"), "There is no folder '{}'"),
    ],
)
def test_an_argument_that_a_library_does_not_find_is_named(
    tmp_path: Path, named: str, arguments: tuple[str, ...], text: str
):
    work = tmp_path / "jobs" / "j1" / "attempt-1" / "work"
    found = told(tmp_path, named, *arguments, text=text.replace("WORK", str(work)))
    assert found == fix_of(Kind.NO_FILE, "unsent", path=named.removeprefix("./"))


def test_the_configuration_that_hydra_does_not_find_is_named(tmp_path: Path):
    work = tmp_path / "jobs" / "j1" / "attempt-1" / "work"
    text = f"Primary config directory not found. Check that '{work}/conf' exists"
    found = told(tmp_path, "", text=text, is_of_hydra=True)
    assert found == fix_of(Kind.NO_FILE, "unsent", path="conf")


@pytest.mark.parametrize("arguments", [("--mode", "train"), ("--x", "/train"), ("a=",), ()])
def test_a_word_of_a_message_is_no_path(tmp_path: Path, arguments: tuple[str, ...]):
    assert told(tmp_path, "", *arguments, text="no train split in /train") == UNKNOWN


@pytest.mark.parametrize("named", ["/data/train.bin", "../train.bin"])
def test_of_files_elsewhere_nothing_is_known(tmp_path: Path, named: str):
    assert told(tmp_path, named) == UNKNOWN


@pytest.mark.parametrize(
    ("place", "message", "folder"),
    [
        ("mine/__init__.py", "No module named 'mine'", "."),
        ("src/mine.py", "No module named 'mine'", "src"),
        ("mine/__init__.py", "No module named 'mine.deep'", None),
        (".git/mine.py", "No module named 'mine'", None),
        ("other.py", "No module named 'mine'", None),
    ],
)
def test_a_module_that_is_there_is_named_with_what_has_python_find_it(
    tmp_path: Path, place: str, message: str, folder: str | None
):
    work = tmp_path / "work"
    (work / place).parent.mkdir(parents=True)
    (work / place).touch()
    (tmp_path / "command.json").write_text(json.dumps({"directory": str(work)}))
    raised = Raised("ModuleNotFoundError", "builtins", message, monotonic_s=1.0)
    record = ExitRecord(pid=7, monotonic_s=1.0, is_over=True, escaped=raised)
    problem = RankEnding(tmp_path, Rank(0), 0, record, None, ()).problem()
    assert problem is not None
    assert problem.kind is Kind.NO_MODULE
    expected = fix_of(Kind.NO_MODULE, "not on path", what="mine", folder=folder)
    assert (problem.fix == expected) is (folder is not None)


def test_of_files_of_a_folder_of_the_nodes_nothing_is_known(tmp_path: Path):
    assert told(tmp_path, "data/train.bin", folder="/shared") == UNKNOWN
