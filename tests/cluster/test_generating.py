"""``chat``, and what cannot be generated: a checkpoint of two nodes with own disks answers.

The notebook on finetuning generates and serves: ``tests/notebook/test_finetuning.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.cluster import Cluster
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.workload.workload import from_path
from tests.agent.live import LiveAgent
from tests.waiting import PATIENCE_S
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
        view = job.wait(PATIENCE_S)
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
    code, _, err = say("generate", job.id, "Hello")
    job.kill()
    assert code == SpecError.exit_code
    assert says("not a recipe of the built-in trainer", err)


@pytest.mark.slow
def test_a_chat_has_several_turns_and_its_job_ends_with_it(
    say: Say, trained: str, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["/help", "The agent on", "/tokens 4", "each node", "", "/nothing", "/exit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    words = ("chat", trained, "--completion", "--temperature", "0", "--tokens", "20")
    code, out, err = say(*words)
    assert code == 0, err
    assert f"{trained}, step 60" in out
    assert says("/clear forget the conversation", " ".join(out.split()))
    first, second = (line for line in out.splitlines() if line.startswith(" "))
    assert (SENTENCE * 3).startswith(f"The agent on{first}")
    assert f"each node{second.rstrip()}" in SENTENCE
    assert len(second) < len(first)
    assert says("There is no /nothing", out)
    [job] = [one for one in cluster.jobs() if one.spec.name == f"chat {trained}"]
    assert cluster.job(job.job_id).wait(PATIENCE_S).state == "succeeded"
    code, _, err = say("chat", trained)
    assert code == RefusedError.exit_code
    assert says("this model has no chat template", err)
    assert says("add --completion", err)


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
