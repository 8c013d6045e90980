"""``doctor --deep`` on two real agents: what only starting a job finds, and nothing else."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from tests.agent.live import LiveAgent, two_agents
from tests.cluster.conftest import wait_for
from tests.train.test_loop import saved_model

pytestmark = pytest.mark.slow

MODULE = "shiny"
"""Found on both nodes, and broken on node2."""

BROKEN = f"""
import os
if os.environ["MNTRAIN_NODE"] == "node2":
    raise ImportError("lib{MODULE}.so.2: cannot open shared object file")
"""

MEMORY_BYTES = 2 << 30
"""That a process of the agents may write to."""

RECIPE = """
[model]
preset = "llama-tiny"
[data]
vocabulary_size = 300
sequence_length = 64
[pipeline]
microbatches = 2
[train]
batch_size = 4
steps = 900
[checkpoint]
interval_steps = 1
"""

LARGE = f"""
{RECIPE.replace("sequence_length = 64", "sequence_length = 8192")}
""".replace("batch_size = 4", "batch_size = 1024")
"""Of which every hidden state takes 512 MiB."""

SCRIPT = f"""
import torch, {MODULE}
raise SystemExit("the doctor does not run it")
"""

Doctor = Callable[[str], tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    """Two with a limit of memory, and a module that is broken on one of them."""
    modules = tmp_path_factory.mktemp("modules")
    (modules / f"{MODULE}.py").write_text(BROKEN)
    network = f"127.{150 + os.getpid() % 100}.{secrets.randbelow(250)}"
    state = tmp_path_factory.mktemp("state")
    environment = {"PYTHONPATH": str(modules)}
    with two_agents(network, state, "test", environment) as made:
        yield made


@pytest.fixture
def doctor(
    agents: list[LiveAgent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Doctor]:
    """Examines both nodes for a file, and starts it."""
    where = [word for agent in agents for word in ("--agent", agent.where)]

    def run(name: str, *words: str) -> tuple[int, dict[str, Any]]:
        path = str(tmp_path / name)
        said = ["--cluster", agents[0].cluster, *where, "--json", "doctor", "--for", path]
        code = main([*said, "--deep", *words])
        captured = capsys.readouterr()
        assert captured.out, captured.err
        return code, json.loads(captured.out)

    yield run
    left = [path for agent in agents for path in agent.state.glob("*/*") if is_left(path)]
    assert left == []


def is_left(path: Path) -> bool:
    return path.parent.name in ("jobs", "runs") and path.is_dir() and path.name.startswith("j-")


def deep(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in report["findings"] if one["check"] == "deep-step"]


def test_a_recipe_that_works_makes_a_step(doctor: Doctor, tmp_path: Path, cluster: Cluster):
    (tmp_path / "recipe.toml").write_text(RECIPE)
    code, report = doctor("recipe.toml")
    assert code == 0, report["findings"]
    assert [(one["node"], one["level"]) for one in deep(report)] == [
        ("node1", "passed"),
        ("node2", "passed"),
    ]
    assert all("planned" in one["said"] for one in deep(report))
    wait_for(lambda: not cluster.jobs(everything=True))


def test_a_module_that_is_found_and_cannot_be_imported_is_named(doctor: Doctor, tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT)
    code, report = doctor("train.py")
    assert code == 1
    assert not [one for one in report["findings"] if one["level"] == "stops"][1:]
    (one,) = deep(report)
    assert (one["node"], one["level"]) == ("node2", "stops")
    assert f"lib{MODULE}.so.2" in one["problem"]["cause"]


def test_ranks_of_a_script_that_works_meet(doctor: Doctor, tmp_path: Path):
    (tmp_path / "train.py").write_text(SCRIPT.replace(f", {MODULE}", ""))
    code, report = doctor("train.py")
    assert code == 0, report["findings"]
    assert [one["level"] for one in deep(report)] == ["passed", "passed"]
    assert all("no step" in one["said"] for one in deep(report))


def test_weights_of_another_model_are_named(doctor: Doctor, tmp_path: Path):
    from transformers import Qwen2Config

    text = tmp_path / "a.txt"
    text.write_text("".join(f"bubble {n} schedule {n * n} microbatch\n" for n in range(400)))
    model = saved_model(text, tmp_path / "model", vocabulary_size=280)
    config = Qwen2Config.from_pretrained(model)
    config.intermediate_size = 96
    config.save_pretrained(model)
    named = RECIPE.replace('preset = "llama-tiny"', f'path = "{model}"')
    (tmp_path / "recipe.toml").write_text(named)
    code, report = doctor("recipe.toml", "--member", "node1:1")
    assert code == 1
    assert {one["check"] for one in report["findings"] if one["level"] == "stops"} == {"deep-step"}
    (one, *_) = deep(report)
    assert one["level"] == "stops"
    assert "its config says" in one["problem"]["cause"]


def test_a_step_that_memory_has_no_room_for_is_named(
    doctor: Doctor, agents: Sequence[LiveAgent], tmp_path: Path
):
    (tmp_path / "recipe.toml").write_text(LARGE)
    limit_memory(agents)
    code, report = doctor("recipe.toml")
    assert code == 1
    found = [one for one in deep(report) if one["level"] == "stops"]
    assert {one["problem"]["kind"] for one in found} == {"out-of-memory"}
    assert all("by the plan" in one["problem"]["cause"] for one in found)


def limit_memory(agents: Sequence[LiveAgent]) -> None:
    """Of what the agents start from now on."""
    import resource

    for agent in agents:
        assert agent.process is not None
        limits = (MEMORY_BYTES, MEMORY_BYTES)
        resource.prlimit(agent.process.pid, resource.RLIMIT_DATA, limits)
