"""Rendering: the commands of a launch, from what the nodes have."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.launch.launcher import AgentLauncher
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch import NodeCommand
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Origin, Participant
from jupyter_mntrain.model.records.node import Tools
from jupyter_mntrain.recipe.stored import RECIPE_FILE, SET
from tests.standin.agent import FakeAgent
from tests.standin.nodes import gpu
from tests.waiting import coming
from tests.wording import says

pytestmark = pytest.mark.anyio


Agents = Callable[..., Awaitable[FakeAgent]]


async def rendered(agent: FakeAgent, spec: JobSpec) -> tuple[NodeCommand, ...]:
    """The commands of a job on this node."""
    live = ClusterView("default", discovery=StaticDiscovery(), clock=time)
    await live.start([(agent.where, "typed")])
    try:
        await coming(lambda: [view.liveness for view in live.nodes] == ["up"])
        return await AgentLauncher(live, clock=time).render(spec)
    finally:
        await live.close()


async def refused(agent: FakeAgent, spec: JobSpec, kind: type[MntrainError]) -> Problem:
    with pytest.raises(kind) as error:
        await rendered(agent, spec)
    return error.value.problem


def on_gpu_1(*entry: str, **fields: Any) -> JobSpec:
    return JobSpec(
        entry=entry or ("-m", "trainer"),
        participants=(Participant(node="node1", nproc=1, gpus=(1,)),),
        **fields,
    )


def training(*settings: str) -> JobSpec:
    words = [word for one in settings for word in (SET, one)]
    return on_gpu_1("-m", TRAINER, RECIPE_FILE, *words, files={RECIPE_FILE: ""})


async def test_gpus_are_named_as_the_agent_will(agent_here: Agents) -> None:
    agent = await agent_here("node1", gpus=(gpu(0), gpu(1)))
    (command,) = await rendered(agent, on_gpu_1())
    assert command.environment["CUDA_VISIBLE_DEVICES"] == "node1-GPU-1"


async def test_bfloat16_is_refused_before_the_launch_where_the_gpu_lacks_it(
    agent_here: Agents,
) -> None:
    cards = (gpu(0, compute_capability=(8, 0)), gpu(1, name="T4", compute_capability=(7, 5)))
    agent = await agent_here("node1", gpus=cards)
    problem = await refused(agent, training("model.dtype=bfloat16"), RecipeError)
    assert problem.node == "node1"
    assert says('model.dtype = "bfloat16": GPU 1, T4, has no bfloat16', problem.cause)
    assert "7.5" in problem.cause
    assert says('use dtype = "float32"', problem.fix)
    for fits in (
        training("model.dtype=float32"),
        training("model.dtype=bfloat16", "train.device=cpu"),
    ):
        assert len(await rendered(agent, fits)) == 1


@pytest.mark.parametrize(
    ("capability", "dtype"), [((8, 0), "bfloat16"), ((7, 5), "float32"), (None, "float32")]
)
async def test_what_the_cards_decide_is_passed_on_to_all_ranks(
    agent_here: Agents, capability: tuple[int, int] | None, dtype: str
) -> None:
    agent = await agent_here("node1", gpus=(gpu(1, compute_capability=capability),))
    (command,) = await rendered(agent, training())
    options = dict(one.split("=") for one in command.argv if one.startswith(("model.", "memory.")))
    assert options == {
        "model.dtype": dtype,
        "model.attention": "sdpa",
        "memory.loss": "plain",
        "memory.compile": "false",
        "memory.checkpointing": "none",
    }
    assert command.argv[command.argv.index(f"model.dtype={dtype}") - 1] == "--auto"
    # A job that starts over chooses again; one that goes on keeps its dtype, or is refused.
    kept = msgspec.structs.replace(training(), chosen={"model.dtype": "bfloat16"})
    (again,) = await rendered(agent, kept)
    assert again.argv == command.argv
    resumed = msgspec.structs.replace(kept, origin=Origin(step=4))
    if capability == (7, 5):
        problem = await refused(agent, resumed, RecipeError)
        assert says("the run that is resumed has bfloat16 weights", problem.cause)
    else:
        (command,) = await rendered(agent, resumed)
        assert "model.dtype=bfloat16" in command.argv


async def test_a_node_without_a_compiler_is_refused_before_the_launch(agent_here: Agents) -> None:
    bare = Tools(packages={"triton": "3.5"}, has_headers=True)
    card = gpu(1, compute_capability=(9, 0))
    agent = await agent_here("node1", gpus=(card,), versions={"tools": bare})
    problem = await refused(agent, training("memory.compile=true"), RecipeError)
    assert problem.node == "node1"
    assert says("no C compiler", problem.cause)
    assert says("apt install gcc", problem.fix)
    assert len(await rendered(agent, training("train.steps=1000"))) == 1


@pytest.mark.parametrize("capability", [(8, 0), (12, 0), None])
async def test_bfloat16_is_not_refused_on_a_gpu_that_has_it_or_does_not_tell(
    agent_here: Agents, capability: tuple[int, int] | None
) -> None:
    agent = await agent_here("node1", gpus=(gpu(1, compute_capability=capability),))
    assert len(await rendered(agent, training("model.dtype=bfloat16"))) == 1
