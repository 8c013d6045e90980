"""Example notebooks, run on two real agents: they do what they say.

The quickstart is executed by the demo's own tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.agent.live import LiveAgent, addresses_of, two_agents
from tests.notebook.test_books import BOOKS, FOLDER
from tests.wording import says

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq"),
]

CELL_TIMEOUT_S = 1000
"""On a machine that is busy with other work."""


@pytest.mark.parametrize("name", BOOKS)
def test_it_is_a_valid_notebook(name):
    nbformat.validate(nbformat.read(FOLDER / f"{name}.ipynb", as_version=4))


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
        book = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
        resources = {"metadata": {"path": str(tmp_path)}}
        client = NotebookClient(
            book, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=resources
        )
        try:
            client.execute()
        except CellExecutionError:
            for agent in agents:
                for log in sorted(agent.state.glob("jobs/*/attempt-*/log")):
                    print(log, log.read_text(errors="replace")[-4000:], sep="\n")
            raise
        return {
            cell.source.partition("\n")[0]: shown(cell)
            for cell in book.cells
            if cell.cell_type == "code"
        }

    return run


def shown(cell: nbformat.NotebookNode) -> str:
    """All text of a cell's outputs; a picture is named by its type."""
    parts = []
    for output in cell.outputs:
        data = output.get("data", {})
        parts += [output.get("text", ""), data.get("text/plain", ""), *data]
        parts += output.get("traceback", [])
    return "\n".join(parts)


def test_your_own_script_runs_on_both_nodes_with_plots(executed):
    cells = executed("your_own_script")
    assert "image/png" in cells["%mntrain attach --wait"]
    assert "succeeded" in cells["%mntrain status"]
    assert "rank 1 of 2 on node2" in cells["%mntrain logs --rank 1 --tail 3"]
    told = cells["%mntrain logs --tail 20"]
    assert "RANK=0" in told
    assert "RANK=1" in told
    assert "NCCL_SOCKET_IFNAME==lo" in told


def test_a_job_is_watched_stopped_repeated_and_one_fails_with_its_cause(executed):
    cells = executed("watch_and_steer")
    assert "is at step" in cells["import time"]
    assert "long" in cells["%mntrain jobs"]
    assert "canceled" in cells["%mntrain stop {job.id}"]
    shorter = "%mntrain launch long.toml --name unbroken --set train.steps=40 --wait -o unbroken"
    assert "succeeded" in cells[shorter]
    resumed = cells["%mntrain resume {first.id} --wait -o second"]
    assert "succeeded" in resumed
    assert says("resumed after step", resumed)
    assert says("whole", cells["%mntrain checkpoints {first.id}"])
    compared = cells["%mntrain compare {second.id} {unbroken.id}"]
    assert says("All settings are the same", compared)
    assert "equal: True" in cells["def losses(job):"]
    panel = cells["%mntrain panel llama-tiny"]
    assert "%%mntrain launch --member node1 --member node2" in panel
    assert 'preset = "llama-tiny"' in panel
    failed = cells["%%mntrain launch --name broken --wait"]
    for text in (failed, cells["%mntrain status"]):
        assert "no shard 7 in /data" in text
        assert says("node2: rank 1: FileNotFoundError: no shard 7 in /data", text)


def test_a_model_learns_who_it_is_and_says_so_wherever_it_is_loaded(executed):
    cells = executed("finetune")
    asked = '%mntrain generate {samantha.id} "Who are you?" --chat --temperature 0 --tokens 40'
    assert "I am Samantha. I like to listen." in cells[asked]
    assert "I am Samantha" not in cells['%mntrain generate {base.id} "Who are you?" --tokens 20']
    assert says("whole", cells["%mntrain checkpoints {samantha.id}"])
    told = cells["%mntrain logs {samantha.id} --rank 0 --tail 12"]
    assert "evaluation after step 120" in told
    assert "sample after step 120: 'Who are you?' → 'I am Samantha. I like to listen." in told
    said = cells["import subprocess"]
    for answer in ("It is good to hear from you.", "I am Samantha.", "You are welcome."):
        assert answer in said
    assert "My name is Samantha." in cells["import httpx"]
    taught = cells[
        '%mntrain generate {lora.id} "Are you happy?" --chat --temperature 0 --tokens 40'
    ]
    assert "I am glad, and I like to listen to people." in taught
    assert "7b-2gpu-eager" in cells["%mntrain recipes"]
