"""``mntrain``: what goes to stdout, what to stderr, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

import jupyter_mntrain
from jupyter_mntrain.agent.membership.state import Settings, keep
from jupyter_mntrain.cli import main
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.recipe.builtin import built_in
from jupyter_mntrain.recipe.parse import parse_recipe
from jupyter_mntrain.trust.credentials import OWN, TRUSTED
from jupyter_mntrain.verbs.verb import Outcome
from tests.standin.cluster import StandInCluster
from tests.wording import says


@pytest.fixture
def run(cluster, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text('[model]\npreset = "llama-tiny"\n')
    monkeypatch.setattr("jupyter_mntrain.verbs.verb.connect", lambda name, addresses: cluster)

    def run(*words: str):
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_tables_go_to_stdout_and_are_not_folded_in_a_pipe(run):
    code, out, err = run("nodes")
    assert (code, err) == (0, "")
    assert "wopr" in out
    assert max(map(len, out.splitlines())) > 80


def test_json_is_all_that_stdout_holds(run):
    for words in (["nodes"], ["jobs"], ["status"], ["logs"], ["measure"], ["stop", "j-7f3a"]):
        code, out, err = run(*words, "--json")
        assert err == ""
        json.loads(out)
    code, out, _ = run("launch", "r.toml", "--wait", "--json")
    assert code == 0
    assert json.loads(out)["state"] == "succeeded"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nodse"], 2),
        (["launch", "gone.toml"], 2),
        (["launch", "r.toml", "--set", "train.stesp=1"], 2),
        (["status", "j-nope"], 5),
    ],
)
def test_an_error_is_one_line_on_stderr_with_its_own_exit_code(run, words, code):
    got, out, err = run(*words)
    assert got == code
    assert out == ""
    assert len(err.splitlines()) == 1
    assert err.startswith("mntrain: ")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["nodse"], Kind.BAD_COMMAND, 2),
        (["launch", "r.toml", "--set", "train.stesp=1"], Kind.BAD_RECIPE, 2),
        (["status", "j-nope"], Kind.NO_SUCH_JOB, 5),
        (["agent", "run", "--port", "0"], Kind.BAD_COMMAND, 2),
    ],
)
def test_with_json_an_error_is_its_problem_on_stderr_with_the_same_exit_code(
    run, words, kind, code
):
    got, out, err = run("--json", *words)
    problem = msgspec.json.decode(err, type=Problem)
    assert (got, out, problem.kind) == (code, "", kind)
    assert run(*words)[2] == f"mntrain: {problem}\n"


def test_with_json_the_traceback_is_the_detail_of_the_problem(run):
    _, _, err = run("status", "j-nope", "--traceback", "--json")
    assert "Traceback" in json.loads(err)["detail"]


def test_json_for_a_script_is_not_json_for_mntrain(run):
    _, _, err = run("launch", "gone.py", "--", "--json")
    assert err.startswith("mntrain: ")


def test_the_traceback_is_shown_when_it_is_asked_for(run):
    _, _, err = run("status", "j-nope", "--traceback")
    assert "Traceback" in err


def test_ctrl_c_while_waiting_detaches(run, cluster):
    cluster.to_launch.interrupts_wait = True
    code, out, _ = run("launch", "r.toml", "--wait")
    assert code == 130
    assert "continues" in out


def test_a_failed_job_is_exit_code_one_with_its_cause_first(run, cluster, failed_cluster):
    (job,) = failed_cluster._jobs.values()
    cluster.to_launch = job
    code, out, _ = run("launch", "r.toml", "--wait")
    assert code == 1
    assert says("✕ muthur: rank 2: eno1 lost its link", out)


def test_plot_writes_the_picture(run, tmp_path):
    code, out, _ = run("plot", "-o", "p.png", "--theme", "dark")
    assert code == 0
    assert "wrote" in out
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.wording
def test_an_old_name_costs_one_line_of_stderr_that_says_the_new_one(run, tmp_path):
    code, out, err = run("plot", "--out", "p.png")
    assert (code, err) == (
        0,
        "mntrain: --out is now --output; the old form is accepted until 1.0\n",
    )
    assert (tmp_path / "p.png").exists()
    code, out, err = run("export", "j-7f3a", "old.toml", "--json")
    assert json.loads(out)["file"] == "old.toml"
    assert err == (
        "mntrain: FILE after JOB is now --output FILE; the old form is accepted until 1.0\n"
    )
    code, out, err = run("plot", "j-nope", "--out", "p.png", "--json")
    assert json.loads(err)["kind"], "an error's stderr is JSON and nothing else"


def test_the_cluster_is_closed_whatever_happens(run, cluster: StandInCluster):
    run("nodes")
    run("status", "j-nope")
    assert cluster.closed == 2


def test_help_is_no_error(run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    assert "\n  launch " in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["agent"],
            "mntrain agent needs an action. Fix: use one of join, run, drain",
        ),
        (["agent", "rum"], "no action 'rum'. Fix: use run"),
        (["agnet", "run"], "no verb 'agnet'. Fix: use agent"),
        (["agent", "run", "--pport", "1"], "no such option '--pport'. Fix: use --port"),
        (["agent", "run", "--port", "0"], "--port: '0' is not a whole number from 1 to 65535"),
        (["agent", "run", "--cluster", "lab"], "no such option '--cluster'"),
    ],
)
def test_what_an_agent_cannot_do_is_one_line(run, words, told):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert says(told, err)
    assert len(err.splitlines()) == 1


def test_the_agent_is_helped_like_the_other_verbs(run):
    assert "\n  agent " in run("--help")[1]
    code, out, _ = run("agent", "--help")
    assert code == 0
    for action in ("join", "run", "leave", "install-service", "remove-service"):
        assert f"\n  {action} " in out
    assert "--listen IP" in run("agent", "join", "--help")[1]


def test_the_version(run):
    assert run("--version") == (0, f"mntrain {jupyter_mntrain.__version__}\n", "")


def test_the_command_becomes_the_agent(tmp_path):
    """The process that ran ``mntrain`` is the agent's own, and prints its result as data."""
    state = tmp_path / "node"
    settings = Settings(
        name="n1", listen=(), advertised=(), port=8765, link_capacities=(), python=sys.executable
    )
    state.mkdir()
    keep(state, "lab", settings)
    for name in (OWN, TRUSTED):
        (state / name).touch()
    command = [sys.executable, "-m", "jupyter_mntrain.cli", "--json", "agent", "leave"]
    done = subprocess.run(
        [*command, "--state-dir", str(state)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"left": "lab"}
    again = subprocess.run(
        [*command, "--state-dir", str(state)], capture_output=True, text=True, check=False
    )
    assert (again.returncode, again.stdout) == (TrustError.exit_code, "")
    assert json.loads(again.stderr)["kind"] == Kind.NOT_TRUSTED
    command.remove("--json")
    told = subprocess.run(
        [*command, "--state-dir", str(state)], capture_output=True, text=True, check=False
    )
    assert told.stderr.startswith("mntrain agent: ")


@pytest.mark.parametrize(
    ("where", "code"),
    [("| head -1; exit ${PIPESTATUS[0]}", 0), (">&-", 0), (">/dev/full", SpecError.exit_code)],
)
def test_where_nobody_can_read_is_no_defect(where, code):
    done = subprocess.run(
        f"{sys.executable} -m jupyter_mntrain.cli --help {where}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (code > 0), done.stderr


def test_a_shown_recipe_is_its_file(run, tmp_path):
    code, out, _ = run("recipes", "7b-4gpu-eager")
    assert code == 0
    assert out == built_in("7b-4gpu-eager").text
    assert parse_recipe(out).pipeline.schedule == "eager-1f1b"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_must_not_outlive_the_program(run, monkeypatch, number):
    ended = []

    def verb(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            ended.append(number)
            raise

    monkeypatch.setattr("jupyter_mntrain.verbs.run.run", verb)
    before = signal.getsignal(number)
    assert run("nodes")[0] == 128 + number
    assert ended == [number]
    assert signal.getsignal(number) is before


def test_what_nohup_ignores_ends_nothing(run, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(
            "jupyter_mntrain.verbs.run.run",
            lambda *_: os.kill(os.getpid(), signal.SIGHUP) or Outcome(),
        )
        assert run("nodes")[0] == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_breaks_between_words_in_a_terminal(tmp_path):
    """A terminal itself would break in mid-word."""
    command = f"{sys.executable} -m jupyter_mntrain.cli status --allocation {tmp_path}/gone j-nope"
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", command, "/dev/null"],
        env={**os.environ, "COLUMNS": "60", "TERM": "xterm"},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    lines = done.stdout.replace("\r", "").splitlines()
    assert len(lines) > 1
    assert max(map(len, lines[1:])) <= 60
