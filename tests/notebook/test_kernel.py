"""Real kernels, agents and torchrun: one notebook launches, another one ends it."""

from __future__ import annotations

import base64
import io
import os
import re
import sys
from collections.abc import Iterator

import nbformat
import pexpect
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from tests.agent.live import LiveAgent, addresses_of, two_agents
from tests.wording import says

pytestmark = [
    pytest.mark.slow,
    # ipykernel says so of every kernel that is started over TCP, whoever starts it.
    pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq"),
]

CELL_TIMEOUT_S = 1000
"""On a machine that is busy with other work."""

STYLING = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")

ENDLESS = """%%mntrain launch --variable job
import time
from jupyter_mntrain import Recorder
recorder = Recorder()
while True:
    recorder.step(tokens=100, loss=1.0)
    time.sleep(0.1)"""
"""Waits between its steps, so that it leaves the cores to those who look at it."""

SHORT = """%%mntrain launch --member node1:1 --env OMP_NUM_THREADS=1 --variable job
[model]
preset = "llama-tiny"
[pipeline]
microbatches = 4
[train]
steps = 12
batch_size = 8"""

WAIT_FOR_STEPS = """import time
deadline = time.monotonic() + 900
while time.monotonic() < deadline and not ((job.summary().step or 0) >= 4):
    time.sleep(0.2)
print(job.id, job.summary().step)"""

WAIT_FOR_HISTORY = """import time
deadline = time.monotonic() + 900
while time.monotonic() < deadline and not (
    len(job.history().ranks) == 2 and all(series.steps for series in job.history().ranks.values())
):
    time.sleep(0.2)"""

FAILING = """import os
raise ValueError("no data on " + os.environ["MNTRAIN_NODE"])"""


BAD = ("%mntrain launch gone.toml", "%mntrain launch bad.toml", "%mntrain status j-nope")


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("state")
    with two_agents("127.93.0", state, "books") as agents:
        yield agents


@pytest.fixture
def execute(agents, tmp_path, monkeypatch):
    """Run cells in a kernel of their own; what they show stays in the notebook, as when saved."""
    monkeypatch.setenv("MNTRAIN_CLUSTER", "books")
    monkeypatch.setenv("MNTRAIN_AGENTS", addresses_of(agents))

    def run(*cells: str) -> list[nbformat.NotebookNode]:
        book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
        NotebookClient(
            book,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            allow_errors=True,
            resources={"metadata": {"path": str(tmp_path)}},
        ).execute()
        return book.cells

    return run


@pytest.fixture
def console(agents, tmp_path):
    """Run inputs in a real ``jupyter console``, in a terminal; return what each of them showed."""
    environment = {
        **os.environ,
        "MNTRAIN_CLUSTER": "books",
        "MNTRAIN_AGENTS": addresses_of(agents),
        "TERM": "xterm",
    }

    def run(*inputs: str) -> list[str]:
        terminal = pexpect.spawn(
            sys.executable,
            ["-m", "jupyter_console", "--simple-prompt"],
            cwd=str(tmp_path),
            dimensions=(50, 110),
            encoding="utf-8",
            env=environment,
            timeout=CELL_TIMEOUT_S,
        )
        try:
            terminal.expect_exact("In [1]: ")
            return [shown_by(terminal, number, one) for number, one in enumerate(inputs, 1)]
        finally:
            terminal.sendline("exit")
            terminal.expect(pexpect.EOF)
            terminal.close()

    return run


def shown_by(terminal: pexpect.spawn, number: int, line: str) -> str:
    terminal.sendline(line)
    terminal.expect_exact(f"In [{number + 1}]: ")
    return STYLING.sub("", terminal.before).replace("\r", "")


def picture(cell: nbformat.NotebookNode) -> tuple[Image.Image, str]:
    """The last picture of a cell, with its words."""
    data = [output.data for output in cell.outputs if "image/png" in output.get("data", {})][-1]
    return Image.open(io.BytesIO(base64.b64decode(data["image/png"]))), data["text/plain"]


def error(cell: nbformat.NotebookNode) -> nbformat.NotebookNode:
    (found,) = [output for output in cell.outputs if output.output_type == "error"]
    return found


def text(cell: nbformat.NotebookNode) -> str:
    return "\n".join(
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


def test_a_job_is_launched_in_one_kernel_and_ended_in_another(execute, agents):
    """Whoever interrupts a wait in the first one leaves it running, too."""
    interrupt = "import _thread, threading; threading.Timer(6, _thread.interrupt_main).start()"
    first = execute(
        "%load_ext jupyter_mntrain",
        ENDLESS,
        WAIT_FOR_STEPS,
        f"{interrupt}\njob = %mntrain attach --wait",
        "print(job.state)",
        "time.sleep(6)",
    )
    job_id, steps = text(first[2]).split()
    assert int(steps) >= 4, text(first[1])
    assert "continues" in text(first[3])
    assert text(first[4]).strip() == "running"
    # The kernel that launched it has ended; its output went on changing while it lived.
    assert "running" in picture(first[1])[1]

    second = execute(
        "%load_ext jupyter_mntrain",
        f"job = %mntrain attach {job_id}",
        WAIT_FOR_HISTORY,
        "print(min(step.step for series in job.history().ranks.values() for step in series.steps))",
        f"%mntrain stop {job_id}",
        f"%mntrain attach {job_id} --wait",
    )
    assert text(second[3]).strip() == "1"  # the whole history, from its first step on
    assert "no process is left" in text(second[4])
    image, words = picture(second[5])
    assert "canceled" in words
    assert image.height > 600  # with its charts
    assert "canceled" in error(second[5]).evalue
    for agent in agents:
        assert agent.info().leases == ()


def test_the_final_picture_stays_in_the_saved_notebook(execute):
    cells = execute("%load_ext jupyter_mntrain", SHORT, "%mntrain attach --wait", "%mntrain status")
    for cell in cells[1:3]:
        image, words = picture(cell)
        assert re.search(r"✓ succeeded\s+llama-tiny", words)
        assert "step 12 of 12" in words
        assert image.height > 600
    assert not [output for output in cells[2].outputs if output.output_type == "error"]
    assert "✓ succeeded" in text(cells[3])


def test_a_console_ends_with_ranks_and_cause_and_bad_input_is_one_line(console, agents, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "bad.toml").write_text("[train]\nstesp = 3\n")
    loaded, nodes, doctor, cell, *bad = console(
        "%load_ext jupyter_mntrain",
        "%mntrain nodes",
        "%mntrain doctor",
        "%mntrain launch failing.py --wait",
        *BAD,
    )
    assert "looking for nodes" in loaded
    assert all(agent.name in nodes for agent in agents)
    assert "checks passed on 2 nodes" in doctor
    assert "✕ all ranks: ValueError: no data on node" in cell
    assert "✕ failed" in cell
    assert "mntrain: all ranks: ValueError: no data on node" in cell.replace("\n", " ")
    for shown in (cell, *bad):
        assert "Traceback" not in shown
    for shown in bad:
        assert says("Fix: ", shown)
    for agent in agents:
        assert agent.info().leases == ()
