"""Cells from a terminal, on the ranks of two real agents."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.agent.attempt.processes import kill_all, marked
from tests.agent.live import LiveAgent, addresses_of, two_agents
from tests.wording import says

pytestmark = [pytest.mark.slow, pytest.mark.agents]

MNTRAIN = str(Path(sys.executable).with_name("mntrain"))


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    with two_agents("127.97.0", tmp_path_factory.mktemp("state"), "test") as made:
        yield made


@pytest.fixture(scope="module")
def environment(agents: list[LiveAgent]) -> dict[str, str]:
    return {"MNTRAIN_CLUSTER": agents[0].cluster, "MNTRAIN_AGENTS": addresses_of(agents)}


def mntrain(environment: dict[str, str], *words: str, code: str = "") -> Any:
    return subprocess.run(
        [MNTRAIN, *words],
        input=code,
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **environment},
        timeout=240,
    )


def test_a_session_runs_cells_survives_their_errors_and_is_interrupted(environment):
    none = mntrain(environment, "cell", code="1")
    assert none.returncode == 5
    assert says("no session runs", none.stderr)
    begun = mntrain(environment, "session", "start", "--env", "OMP_NUM_THREADS=1", "--json")
    assert begun.returncode == 0, begun.stderr
    job_id = json.loads(begun.stdout)["job_id"]

    first = mntrain(environment, "cell", code="x = rank\nprint('both')\nprint(node)")
    assert first.stdout == "both\nnode1\n[rank 1] node2\n"
    told = mntrain(environment, "cell", "--json", "--rank", "1", code="x += 1")
    (cell,) = json.loads(told.stdout)["cells"]
    assert (cell["rank"], cell["end"]) == (1, "ok")
    failed = mntrain(environment, "cell", code="y = 1\n1 / (2 - x)")
    assert failed.returncode == 1
    assert "ZeroDivisionError" in failed.stdout
    assert says("ZeroDivisionError on rank 1", failed.stderr)

    bad = mntrain(environment, "cell", code="x = = 1")
    assert bad.returncode == 2
    asked = mntrain(environment, "cell", "--json", code="if rank == 1: input('who? ')")
    assert says("the cell was interrupted on rank", asked.stderr)

    with subprocess.Popen(
        [MNTRAIN, "cell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as waiting:
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        waiting.stdin.write("if rank == 0:\n    dist.all_reduce(torch.ones(1))")
        waiting.stdin.close()
        assert "all_reduce in line 2" in waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(60) == 1
    after = mntrain(environment, "cell", code="y = torch.ones(1); dist.all_reduce(y); int(y)")
    assert after.stdout == "2\n", after.stderr

    seen = mntrain(environment, "session", "attach")
    assert says("ready for cells", seen.stdout)
    assert seen.stdout.endswith("2\n")
    ended = mntrain(environment, "stop", job_id)
    assert ended.returncode == 0
    over = mntrain(environment, "cell", "--session", job_id, code="1")
    assert over.returncode == 4
    again = mntrain(environment, "session", "restart")
    assert says("2 ranks ready", again.stdout), again.stderr
    lost = mntrain(environment, "cell", code="'x' in globals()")
    assert lost.stdout == "False\n"
    died = mntrain(environment, "cell", "--rank", "1", code="import os; os._exit(9)")
    assert says("the session is over; start it again", died.stdout)
    assert says("rank 1: ended itself at once", died.stderr)


def test_while_a_node_is_gone_its_cell_is_ended_elsewhere_and_no_restart_is_tried(
    environment, agents
):
    assert mntrain(environment, "session", "start", "--env", "OMP_NUM_THREADS=1").returncode == 0
    with subprocess.Popen(
        [MNTRAIN, "cell"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write("import time\nprint('begun')\ntime.sleep(600)")
        running.stdin.close()
        assert running.stdout.readline() == "begun\n"
        gone = agents[1]
        gone.kill()
        for attempt in gone.state.glob("jobs/*/attempt-*"):
            kill_all(partial(marked, attempt))
        assert says("rank 1: node2", running.stdout.readline())
        refused = mntrain(environment, "session", "restart")
        assert refused.returncode == 3
        assert says("node2: does not answer", refused.stderr)
        assert mntrain(environment, "session", "interrupt").returncode == 0
        seen = mntrain(environment, "session", "attach")
        assert says("rank 1: node2", seen.stdout)
        assert says("interrupted on rank 0", seen.stderr)
        assert running.wait(60) == 3
    gone.start()
    again = mntrain(environment, "session", "restart")
    assert says("2 ranks ready", again.stdout), again.stderr
