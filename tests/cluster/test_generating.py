"""``generate``: continues a text with a job's newest checkpoint, on two nodes with own disks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.wording import says

SENTENCE = "The agent on each node launches one stage. "
RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 275
sequence_length = 32
[pipeline]
microbatches = 2
[train]
steps = 60
batch_size = 8
[optimizer]
learning_rate = 5e-3
"""

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    """The job, once it has been trained: one is enough for all tests."""
    return {}


@pytest.fixture
def trained(cluster: Cluster, known: dict[str, str], tmp_path: Path) -> str:
    """A job that knows one sentence by heart; its shards lie on two nodes."""
    if not known:
        (tmp_path / "text.txt").write_text(SENTENCE * 400)
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(RECIPE.format(text=tmp_path / "text.txt"))
        made = from_path(recipe)
        nodes = tuple(Participant(node=node.name) for node in cluster.nodes())
        job = cluster.launch(JobSpec(entry=made.entry, participants=nodes, files=made.files))
        view = job.wait(120)
        assert view.state == "succeeded", job.logs()
        assert [part.saved_step for part in view.parts] == [60, 60]
        known["job"] = job.id
    return known["job"]


@pytest.fixture
def say(agents: list[LiveAgent], capsys: pytest.CaptureFixture[str]) -> Say:
    def run(*words: str) -> tuple[int, str, str]:
        where = [word for agent in agents for word in ("--agent", agent.where)]
        code = main(["--cluster", agents[0].cluster, *where, *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.slow
def test_it_goes_on_as_it_was_taught(say: Say, trained: str) -> None:
    words = ("generate", trained, "The agent on", "--tokens", "20", "--temperature", "0")
    code, out, err = say("--json", *words)
    assert code == 0, err
    found = json.loads(out)
    assert (found["job_id"], found["step"], found["prompt"]) == (trained, 60, "The agent on")
    assert (SENTENCE * 3).startswith(f"The agent on{found['text']}")
    assert len(found["text"]) > 20
    code, out, _ = say(*words)
    assert f"{trained}, step 60" in out
    assert f"The agent on{found['text'].rstrip()}" in " ".join(out.split())


@pytest.mark.slow
def test_what_cannot_be_generated_is_one_line(say: Say, trained: str, cluster: Cluster) -> None:
    code, out, _ = say("generate", trained, "Hello", "--chat")
    assert code == 1
    said = " ".join(out.split())
    assert says("this model has no chat template. Fix: omit --chat", said)
    script = JobSpec(
        entry=("x.py",),
        participants=(Participant(node=cluster.nodes()[0].name),),
        files={"x.py": "print(1)"},
    )
    job = cluster.launch(script)
    job.wait(60)
    code, _, err = say("generate", job.id, "Hello")
    assert code == SpecError.exit_code
    assert says("not a recipe of the built-in trainer", err)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--tokens", "0"], "--tokens: '0'"),
        (["--temperature", "-1"], "--temperature: '-1'"),
    ],
)
def test_wishes_that_are_none(words: list[str], names: str, capsys) -> None:
    assert main(["--cluster", "none", "generate", "j-1", "Hello", *words]) == SpecError.exit_code
    assert says(names, capsys.readouterr().err)
    assert main(["--cluster", "none", "generate", "j-1", " "]) == SpecError.exit_code
    assert says("the prompt is empty", capsys.readouterr().err)
