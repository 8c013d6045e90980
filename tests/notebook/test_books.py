"""The notebooks people learn from: kept clean, every line parses, and each does what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_mntrain.verbs import parse, split_line
from jupyter_mntrain.workload.workload import from_cell
from tests.agent.live import LiveAgent, addresses_of, two_agents

FOLDER = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
CELL_TIMEOUT_S = 400


def read(name: str) -> nbformat.NotebookNode:
    book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(book)
    return book


def code(book: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def test_there_are_the_promised_ones():
    assert BOOKS == ["finetune", "quickstart", "watch_and_steer", "your_own_script"]


@pytest.mark.parametrize("name", BOOKS)
def test_it_is_kept_without_outputs(name):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code(read(name)))


@pytest.mark.parametrize("name", BOOKS)
def test_every_line_parses_and_every_recipe_fits_two_ranks(name):
    for cell in code(read(name)):
        head, _, body = cell.source.partition("\n")
        if not re.match(r"%{1,2}mntrain ", head):
            continue
        words = re.sub(r"\{\w+\.id\}", "j-00000000", head).lstrip("%").removeprefix("mntrain")
        parse(split_line(words), program="%mntrain")
        if head.startswith("%%"):
            from_cell(body, directory=Path()).check(2)


def test_the_dry_run_of_the_quickstart_shows_what_is_launched():
    cells = code(read("quickstart"))
    bodies = [cell.source.partition("\n")[2] for cell in cells if cell.source.startswith("%%")]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]


# Executed on two real agents. The quickstart is executed by the demo's own tests.


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    with two_agents("127.96.0", tmp_path_factory.mktemp("state"), "lessons") as agents:
        yield agents


@pytest.fixture
def executed(agents, tmp_path, monkeypatch):
    """What each code cell of a notebook shows, by its source's first line."""
    monkeypatch.setenv("MNTRAIN_CLUSTER", "lessons")
    monkeypatch.setenv("MNTRAIN_AGENTS", addresses_of(agents))

    def run(name: str) -> dict[str, str]:
        book = read(name)
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(
            book, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=resources
        ).execute()
        return {cell.source.partition("\n")[0]: shown(cell) for cell in code(book)}

    return run


def shown(cell: nbformat.NotebookNode) -> str:
    """All text of a cell's outputs; a picture is named by its type."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), *data]
        parts += output.get("traceback", [])
    return "\n".join(parts)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq")
def test_your_own_script_runs_on_both_nodes_with_plots(executed):
    cells = executed("your_own_script")
    assert "image/png" in cells["%mntrain attach --wait"]
    assert "succeeded" in cells["%mntrain status"]
    assert "rank 1 of 2 on node2" in cells["%mntrain logs --rank 1 --tail 3"]
    told = cells["%mntrain logs --tail 20"]
    assert "RANK=0" in told
    assert "RANK=1" in told
    assert "NCCL_SOCKET_IFNAME==lo" in told


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq")
def test_a_job_is_watched_stopped_repeated_and_one_fails_with_its_cause(executed):
    cells = executed("watch_and_steer")
    assert "is at step" in cells["import time"]
    assert "long" in cells["%mntrain jobs"]
    assert "canceled" in cells["%mntrain stop {job.id}"]
    assert (
        "succeeded" in cells["%mntrain launch long.toml --name again --set train.steps=12 --wait"]
    )
    panel = cells["%mntrain panel llama-tiny"]
    assert "%%mntrain launch --member node1 --member node2" in panel
    assert 'preset = "llama-tiny"' in panel
    failed = cells["%%mntrain launch --name broken --wait"]
    assert "no shard 7 in /data" in failed
    assert "node2" in failed
    assert "node2: rank 1: FileNotFoundError: no shard 7 in /data" in cells["%mntrain status"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq")
def test_a_model_learns_who_it_is_and_says_so_wherever_it_is_loaded(executed):
    cells = executed("finetune")
    asked = '%mntrain generate {samantha.id} "Who are you?" --chat --temperature 0 --tokens 40'
    assert "I am Samantha. I like to listen." in cells[asked]
    assert "I am Samantha" not in cells['%mntrain generate {base.id} "Who are you?" --tokens 20']
    assert "evaluation after step 120" in cells["%mntrain logs {samantha.id} --rank 0 --tail 12"]
    sample = "sample after step 120: 'Who are you?' → 'I am Samantha. I like to listen."
    assert sample in cells["%mntrain logs {samantha.id} --rank 0 --tail 12"]
    assert "My name is Samantha." in cells["import os"]
    assert "7b-2gpu-eager" in cells["%mntrain recipes"]
