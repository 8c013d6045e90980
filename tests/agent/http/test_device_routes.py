"""Device routes: a real agent without torch has its CPU measured, keeps that, and spares a job."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from jupyter_mntrain.agent.machine.devices.measuring import PROGRAM
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import TRAINER
from jupyter_mntrain.model.records.plan import (
    DeviceMeasurement,
    MeasureDevices,
    MeasuringDevices,
)
from tests import trusted
from tests.agent.live import LiveAgent, launch, lease
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.agents, pytest.mark.slow]

QUICK = {"MNTRAIN_DEVICES_PIECE_S": "0.01", "MNTRAIN_DEVICES_LONGEST_ROUND_S": "0.1"}
JOB = JobId("j-0000abcd")


def measure(agent: LiveAgent, request: MeasureDevices) -> httpx.Response:
    return httpx.post(
        f"{agent.url}/v1/probe/devices",
        verify=trusted.driver_context(),
        content=msgspec.json.encode(request),
        timeout=4 * PATIENCE_S,
    )


def measuring(agent: LiveAgent) -> str | None:
    """The dtype that an agent says it measures now."""
    answer = agent.get("/v1/probe/devices")
    return msgspec.json.decode(answer.content, type=MeasuringDevices).dtype


def test_an_agent_measures_its_cpu_and_keeps_that(new_agent: Callable[..., LiveAgent]) -> None:
    agent = new_agent(environment=QUICK)
    answer = measure(agent, MeasureDevices(ranks=2, dtypes=("float32",)))
    assert answer.status_code == 200, answer.text
    assert measuring(agent) is None, "it is done"
    (measured,) = msgspec.json.decode(answer.content, type=tuple[DeviceMeasurement, ...])
    assert (measured.gpu, measured.dtype, measured.ranks) == (None, "float32", 2)
    assert measured.flops_per_s > 1e7
    assert measured.layers
    inventory = agent.info().inventory
    assert inventory.devices == (measured,)
    assert measured.device == inventory.cpu_model
    assert agent.process is not None
    assert "libtorch" not in Path(f"/proc/{agent.process.pid}/maps").read_text()
    agent.end()
    assert agent.start().info().inventory.devices == (measured,)


def test_beside_a_job_nothing_is_measured(new_agent: Callable[..., LiveAgent]) -> None:
    agent = new_agent()
    lease(agent, JOB, 1, None)
    answer = measure(agent, MeasureDevices())
    assert (answer.status_code, answer.json()["kind"]) == (409, "still-running")
    assert agent.info().inventory.devices == ()


def test_an_interpreter_without_torch_is_said(
    new_agent: Callable[..., LiveAgent], tmp_path: Path
) -> None:
    agent = new_agent()
    answer = measure(agent, MeasureDevices(python=str(tmp_path / "gone")))
    assert (answer.status_code, answer.json()["kind"]) == (409, "no-python")
    assert answer.json()["node"] == agent.name


RECIPE = """
[model]
preset = "llama-tiny"
layers = 2
hidden_size = 64
dtype = "float32"
[data]
sequence_length = 32
[pipeline]
schedule = "1f1b"
microbatches = 1
split = "even"
[train]
steps = 15
batch_size = 1
"""


def test_what_a_job_achieved_is_kept_beside_what_was_measured(
    new_agent: Callable[..., LiveAgent],
) -> None:
    agent = new_agent(environment=QUICK)
    assert measure(agent, MeasureDevices(dtypes=("float32",))).status_code == 200
    entry, files = ("-m", TRAINER, "recipe.toml"), {"recipe.toml": RECIPE}
    # More threads would spin while they wait for one another, where others need the cores.
    job_id = launch([agent], "", entry=entry, files=files, environment={"OMP_NUM_THREADS": "1"})
    assert agent.ended(job_id).part.state == "succeeded", agent.log()
    until(lambda: agent.info().inventory.devices[0].achieved is not None, "what it achieved")
    (achieved,) = (one.achieved for one in agent.info().inventory.devices)
    assert achieved is not None
    assert achieved.job_id == job_id
    assert achieved.slower > 0
    assert achieved.flops_per_s > 0


def test_an_agent_that_ends_while_it_measures_leaves_no_program_behind(
    new_agent: Callable[..., LiveAgent],
) -> None:
    agent = new_agent(environment={"MNTRAIN_DEVICES_PIECE_S": "60"})
    assert agent.process is not None
    its = psutil.Process(agent.process.pid)

    def programs() -> list[psutil.Process]:
        found = []
        for one in its.children():
            with suppress(psutil.Error):  # another that the agent has started has just ended
                found += [one] if PROGRAM in one.cmdline() else []
        return found

    with ThreadPoolExecutor() as pool:
        asked = pool.submit(measure, agent, MeasureDevices(ranks=2, dtypes=("bfloat16",)))
        until(lambda: len(programs()) == 2, "two programs to measure")
        running = programs()
        until(lambda: measuring(agent) == "bfloat16", "it to say which dtype it measures")
        agent.process.terminate()
        agent.process.wait(PATIENCE_S)
        if asked.exception(PATIENCE_S) is None:
            assert asked.result().status_code != 200
    gone, alive = psutil.wait_procs(running, PATIENCE_S)
    assert (len(gone), alive) == (2, [])
