"""Bad input on the command line of a real cluster: one line with the cause and the fix.

After every case nothing runs and nothing is leased.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from tests.agent.live import LiveAgent, two_agents
from tests.wording import says

pytestmark = pytest.mark.slow

RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 2\nbatch_size = 8\n'
ONE = ("--member", "node1:1")
FEW_MICROBATCHES = RECIPE + '[pipeline]\nschedule = "1f1b"\nmicrobatches = 1\n'


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("state")
    with two_agents("127.91.0", state, "bad") as agents:
        yield agents


@pytest.fixture
def mntrain(
    agents: list[LiveAgent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """The command line, in this process: starting another takes longer than what it does here."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        known = [w for agent in agents for w in ("--agent", f"{agent.address}:{agent.port}")]
        code = main(["--cluster", "bad", *known, *words])
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run


def nothing_left(agents: list[LiveAgent]) -> None:
    for agent in agents:
        assert agent.info().leases == ()
        assert all(
            record.part.state in {"failed", "canceled", "succeeded"} for record in agent.records()
        )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--member", "nod1:1"], ["nod1", "node1"]),
        (["--member", "node1:1:eth77"], ["node1", "eth77"]),
        (["--member", "node1:zero"], ["zero", "HOST:N[:IFACE]"]),
        (["--member", "node1:1", "--head", "node2"], ["node2"]),
        (["--set", "train.stesp=3"], ["train.stesp", "steps"]),
        (["--set", "train.steps=0"], ["train.steps", "0"]),
        (["--set", "pipeline.in_flight=[1]"], ["in_flight", "1"]),
        (["--set", "model.preset=lama-tiny"], ["lama-tiny", "llama-tiny"]),
        (["--port", "99999999"], ["99999999"]),
        (["--env", "NOVALUE"], ["NOVALUE"]),
    ],
)
def test_a_launch_that_cannot_be_is_one_line(agents, mntrain, words, named):
    done = mntrain("launch", "recipe.toml", *words)
    assert done.returncode != 0
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in named:
        assert word in lines[0]
    assert says("Fix:", lines[0])
    nothing_left(agents)


def test_a_taken_port_is_named_with_its_node(agents, mntrain):
    with socket.create_server((agents[0].address, 0)) as taken:
        port = str(taken.getsockname()[1])
        done = mntrain(
            "launch", "recipe.toml", "--port", port, "--member", "node1:1", "--member", "node2:1"
        )
    assert done.returncode == 4
    assert "node1: " in done.stderr
    assert port in done.stderr
    assert says(f"node1: port {port}", done.stderr)
    assert says("is taken", done.stderr)
    nothing_left(agents)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        ("missing.py", None, "missing.py"),
        ("broken.py", "def f(:\n", "line 1"),
        ("data.csv", "1,2\n", "data.csv"),
        ("few.toml", FEW_MICROBATCHES, "microbatches"),
        ("torn.toml", "[model\n", "torn.toml"),
    ],
)
def test_a_file_that_cannot_run_is_refused_before_anything_starts(
    agents, mntrain, tmp_path, name, content, named
):
    if content is not None:
        (tmp_path / name).write_text(content)
    done = mntrain("launch", name)
    assert done.returncode == 2
    assert says(named, done.stderr)
    assert len(done.stderr.strip().splitlines()) == 1
    nothing_left(agents)


def test_a_script_whose_module_no_node_has_is_refused(agents, mntrain, tmp_path):
    (tmp_path / "bad.py").write_text("import not_there\n")
    done = mntrain("launch", "bad.py", "--wait")
    assert done.returncode == 4
    assert "not_there" in done.stderr
    nothing_left(agents)


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("import not_there\n", "ModuleNotFoundError: No module named 'not_there'"),
        ("raise ValueError('no data')\n", "ValueError: no data (bad.py, line 1)"),
    ],
)
def test_a_script_that_fails_at_start_says_so_first(agents, mntrain, tmp_path, script, named):
    (tmp_path / "bad.py").write_text(script)
    done = mntrain("launch", "bad.py", "--wait", "--skip-doctor", *ONE)
    assert done.returncode == 1
    assert named in done.stdout + done.stderr
    nothing_left(agents)


MODELS = [("/nowhere/model", "/nowhere/model"), ("unknown", "mamba")]


def write_model(folder: Path, model: str) -> None:
    """A recipe whose model is not there, or whose family nobody knows and that has no tokenizer."""
    (folder / "unknown").mkdir()
    config = '{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}'
    (folder / "unknown" / "config.json").write_text(config)
    (folder / "model.toml").write_text(f'[model]\npath = "{folder / model}"\n')


@pytest.mark.parametrize("model", [model for model, _ in MODELS])
def test_a_model_that_cannot_be_used_is_refused_with_its_node(agents, mntrain, tmp_path, model):
    write_model(tmp_path, model)
    done = mntrain("launch", "model.toml", "--wait")
    assert done.returncode == 4
    (line,) = done.stderr.strip().splitlines()
    assert "mntrain: node" in line
    assert str(tmp_path / model) in line
    assert says("Fix:", line)
    nothing_left(agents)


@pytest.mark.parametrize(("model", "named"), MODELS)
def test_a_model_that_nobody_has_looked_at_is_named_by_the_ranks(
    agents, mntrain, tmp_path, model, named
):
    write_model(tmp_path, model)
    done = mntrain("launch", "model.toml", "--wait", "--skip-doctor", *ONE)
    assert done.returncode in {1, 2}
    assert named in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    nothing_left(agents)


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["nodse"], 2, "nodes"),
        (["status", "j-deadbeef"], 5, "j-deadbeef"),
        (["--cluster", "a b!", "nodes"], 2, "a b!"),
        (["add", "127.91.0.99:1"], 3, "127.91.0.99:1"),
        (["logs", "--tail", "many"], 2, "many"),
    ],
)
def test_other_bad_lines_are_one_line_with_their_own_exit_code(mntrain, words, code, named):
    done = mntrain(*words)
    assert done.returncode == code, done.stderr
    assert named in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
