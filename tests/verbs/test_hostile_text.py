"""No verb lets text of others reach a terminal, a program or a page as it is."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import jupyter_mntrain.cli as cli
from jupyter_mntrain.agent import main as agent_main
from jupyter_mntrain.cluster import LogLine
from jupyter_mntrain.cluster.acceptance import broken_jobs, trial_jobs
from jupyter_mntrain.cluster.rank_session import Waiting
from jupyter_mntrain.model.errors import NodeError
from jupyter_mntrain.model.records.job import RankStack
from jupyter_mntrain.model.records.session import Asked, At, Done, Lost, Shown, Text
from jupyter_mntrain.trust.driver_membership import DriverMembership
from jupyter_mntrain.verbs.command import verb_parser
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb, connect
from tests.hostile import HOSTILE, LINK, LONG, STYLING, assert_safe, poisoned, strings
from tests.notebook.conftest import Notebook
from tests.standin.cluster import StandInCluster, node, silent
from tests.standin.job_handle import StandInJob
from tests.standin.plans import plan_of
from tests.standin.rank_session import StandInSession
from tests.standin.training import LOST_LINK, Sample, sample_job
from tests.verbs.membership.test_members import join

JOB = "j-7f3a9c21"
WORDS = HOSTILE.replace("\x00", "")
"""What a command line can hold."""

MORE: dict[str, list[list[str]]] = {
    "cell": [["--session", JOB]],
    "export": [[JOB, "--output", f"{WORDS.replace('/', '')}.toml"], [JOB, "--with-secrets"]],
    "generate": [[JOB, WORDS], [JOB, "Once"]],
    "launch": [["r.toml", "--wait"], ["hostile.toml"], ["job.toml"], ["r.toml", "--queue"]],
    "logs": [[JOB, "--follow"]],
    "plot": [[JOB, "-o", "p.png"], [JOB, "-o", f"{WORDS.replace('/', '')}.png"]],
    "trace": [[JOB, "-o", "t.json"], [JOB, "-o", f"{WORDS.replace('/', '')}.json"]],
    "status": [[JOB, "--traceback"]],
    "tensorboard": [[JOB, "--no-server", "--output", WORDS.replace("/", "")]],
}
"""Next to what every verb is given: nothing, a job, and hostile words everywhere."""

REAL_CLUSTER = {"invite", "members", "revoke", "driver", "install", "upgrade"}
"""They need keys, which the cluster in memory does not have."""


WRITE_CELLS = {("cell",), ("session", "attach")}
"""What ranks write keeps its colors, and a progress bar goes back to the begin of its line."""


def leaves(verbs: Mapping[str, Verb], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, verb in verbs.items():
        if verb.actions:
            yield from leaves(verb.actions, (*before, name))
        else:
            yield (*before, name)


SHORTENED = {"accept": ["--only=gang"]}
"""Options without which a verb starts programs of its own."""


def command_lines(path: tuple[str, ...]) -> Iterator[list[str]]:
    """A verb's, with hostile text in the place of every word and option that it takes."""
    verb: Verb = TABLE[path[0]]
    for name in path[1:]:
        verb = verb.actions[name]
    parser = verb_parser(verb, "mntrain")
    at_once = [one for one in ("--no-wait", "--no-server") if one in parser.flags]
    at_once += SHORTENED.get(path[0], [])
    for rest in ([], [JOB], [WORDS], [JOB, WORDS], ["--help"], [f"--{WORDS}"], ["\udcff"]):
        yield [*path, *at_once, *rest]
    for option in parser.value_options:
        if option.startswith("--"):
            yield [*path, *at_once, f"{option}={WORDS}"]
    for rest in MORE.get(path[0], []):
        yield [*path, *rest]


@cache
def hostile_sample(poison: str, *, is_running: bool = False) -> Sample:
    wrote = {"Who?": poison}
    ends: dict[str, Any] = {} if is_running else {"state": "failed", "problem": LOST_LINK}
    sample: Sample = poisoned(
        sample_job(
            {"wopr": 1, "muthur": 1}, steps=3, wrote=wrote, traced=(3,), plan=plan_of(), **ends
        ),
        poison,
    )
    sample.history.view.spec.environment.update({"TOKEN": poison, "PLAIN": poison})
    return sample


def hostile_cluster(poison: str = HOSTILE, *, is_running: bool = False) -> StandInCluster:
    """Everything that agents, ranks and the network say is hostile."""
    job = StandInJob(hostile_sample(poison, is_running=is_running))
    (part, *_) = job.view().parts
    job.lines = [
        LogLine(node=part.node, rank=part.ranks[0].rank, text=line) for line in (poison, LINK, "ok")
    ]
    stack = RankStack(rank=part.ranks[0].rank, doing="busy", where=poison, text=f"a\n\n{poison}")
    job.at = {part.node: [stack], "gone": NodeError(poison, fix=poison, node=poison)}
    ranks = tuple(range(2))
    job.cells = StandInSession(
        [
            Text(0, 1, f"{poison}\n"),
            Text(1, 1, f"{poison[::-1]}\n"),
            *(Shown(one, 2, {"text/plain": f"{poison}{one}"}) for one in ranks),
            Asked(1, 3, poison),
            Lost(0, 4, 1),
            Waiting((At(0, 1, poison, poison),), (1,)),
        ],
        [
            Done(one, 9, "error", 0.1, poison, poison * (one + 1), traceback=(poison,))
            for one in ranks
        ],
    )
    cluster = StandInCluster(
        nodes=[
            poisoned(node("wopr", 2), poison),
            poisoned(node("muthur", 1, gpus=2, torch="2.9"), poison),
            poisoned(silent("10.0.0.9:8765", "refused", "start it"), poison),
        ],
        jobs=[job],
    )
    cluster.strangers = (f"{poison} of {poison}",)
    cluster.to_launch = StandInJob(hostile_sample(poison, is_running=True), ends_as="failed")
    cluster.to_launch.lines = job.lines
    return cluster


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.toml").write_text('[model]\npreset = "llama-tiny"\n')
    keys = 'mntrain_job = 1\nentry = ["s.py"]\nname = "\\u001b\\u202e"\n'
    (tmp_path / "job.toml").write_text(f'{keys}[files]\n"s.py" = "\\u0000"\n')
    (tmp_path / "hostile.toml").write_text(f"[model]\n# \u202e{WORDS}\npreset = \u202e")
    # The picture itself: tests/show/picture.
    monkeypatch.setattr("jupyter_mntrain.show.picture.Picture.draw", lambda *_, **__: b"")
    # What is launched here makes no step.
    monkeypatch.setattr(trial_jobs, "LIMIT_S", 0.0)
    monkeypatch.setattr(broken_jobs, "CLEANUP_S", 0.0)
    monkeypatch.setattr(trial_jobs, "CLEANUP_S", 0.0)
    return tmp_path


@pytest.fixture
def terminal(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str], Any], tuple[str, str]]:
    def fail(options: Any) -> None:
        raise NodeError(HOSTILE, fix=HOSTILE)

    def become_agent(_: str, argv: list[str]) -> None:
        raise SystemExit(agent_main.run(argv[4:]))

    # An agent's command line replaces the process; here it is only called, and never serves.
    monkeypatch.setattr(agent_main, "perform", fail)
    monkeypatch.setattr(os, "execv", become_agent)
    monkeypatch.setattr("jupyter_mntrain.cluster.view.node_search.DISCOVERY_S", 0.0)
    monkeypatch.setenv("MNTRAIN_CLUSTER", "mine")

    _hostile_ssh(here / "bin")
    monkeypatch.setenv("PATH", f"{here / 'bin'}:{os.environ['PATH']}")

    mine = DriverMembership.make("mine")
    join(mine, mine.authorized().invite(), "n1")
    _call_nodes(mine, HOSTILE)

    def run(words: list[str], cluster: Any) -> tuple[str, str]:
        is_real = words[0] in REAL_CLUSTER
        in_memory = lambda name, addresses: cluster  # noqa: E731
        monkeypatch.setattr("jupyter_mntrain.verbs.verb.connect", connect if is_real else in_memory)
        typed = iter(("Hi", WORDS, "/exit"))
        monkeypatch.setattr("builtins.input", lambda _: next(typed))
        monkeypatch.setattr("sys.stdin", io.StringIO("print(rank)"))
        with suppress(SystemExit):
            cli.main(words)
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run


def _call_nodes(mine: DriverMembership, name: str) -> None:
    """As a driver of before names were checked has registered them."""
    file = mine.authorized().file
    register = file.read()
    members = tuple(
        replace(one, title=name) if one.role == "node" else one for one in register.members
    )
    file.write(replace(register, members=members))


def _hostile_ssh(folder: Path) -> None:
    """No machine is called; what its server could say is shown."""
    folder.mkdir()
    said = folder / "said"
    said.write_text(HOSTILE)
    program = folder / "ssh"
    program.write_text(f"#!/bin/sh\ncat {said} >&2\nexit 255\n")
    program.chmod(0o755)


@pytest.mark.parametrize("path", list(leaves(TABLE)), ids=" ".join)
def test_in_a_terminal(path: tuple[str, ...], terminal: Any) -> None:
    for words in command_lines(path):
        cluster = hostile_cluster(is_running=path[0] in ("stop", "kill", "save"))
        shown = "".join(terminal(words, cluster))
        if path in WRITE_CELLS:
            shown = STYLING.sub("", shown).replace("\r", "")
        assert_safe(shown, what=words)
        assert ("Traceback" in shown) <= ("--traceback" in words), shown
    for rest in ([], [JOB], [WORDS]):
        at_once = ["--no-wait"] if path[-1] == "invite" else SHORTENED.get(path[0], [])
        out, err = terminal([*path, *rest, *at_once, "--json"], cluster)
        assert_safe(out + err, what=(path, rest))
        if out or err:
            json.loads(out or err)


def test_colors_of_a_terminal_are_all_that_is_obeyed(
    terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for words in (["nodes"], ["jobs"], ["status"], ["logs"], ["stacks"], ["launch", "r.toml"]):
        out, err = terminal(
            [*words, *(["--wait"] if words[0] == "launch" else [])], hostile_cluster()
        )
        assert "\x1b[" in out
        assert_safe(STYLING.sub("", out + err), what=words)
        assert "\x1b]" not in out
        assert "\x1b[8m" not in out


def test_a_defect_of_ours_quotes_safely(terminal: Any) -> None:
    class Broken(StandInCluster):
        def nodes_when_ready(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError(HOSTILE)

    out, err = terminal(["nodes"], Broken())
    assert_safe(out + err)
    assert "RuntimeError" in err


def test_what_was_there_is_seen(terminal: Any) -> None:
    for words in (["nodes"], ["jobs"], ["status"], ["logs"], ["stacks"], ["export"]):
        out, _ = terminal(words, hostile_cluster())
        assert "\\x1b]52;c;" in out or "\\u001b]52;c;" in out, words
        assert "\\u202e" in out, words


def test_data_for_programs_is_what_was_given(terminal: Any) -> None:
    cluster = hostile_cluster()
    (job,) = cluster.jobs()
    out, _ = terminal(["--json", "status"], cluster)
    assert job.parts[0].node in strings(json.loads(out))
    out, _ = terminal(["--json", "export"], cluster)
    assert "\\u202e" in json.loads(out)["text"]


def test_very_long_text_does_not_flood(terminal: Any) -> None:
    for words in (["nodes"], ["jobs"], ["status"], ["logs"], ["stacks"]):
        out, _ = terminal(words, hostile_cluster(LONG))
        assert len(out) < 1_500_000, (words, len(out))
        assert "more characters)" in out, words
    assert len(terminal(["status", LONG], hostile_cluster())[1]) < 10_000


def test_an_exported_job_with_hostile_text_is_the_same_job(terminal: Any, here: Path) -> None:
    from jupyter_mntrain.launch.spec_file import read_spec

    cluster = hostile_cluster()
    terminal(["export", JOB, "--output", "x.toml", "--with-secrets"], cluster)
    text = (here / "x.toml").read_text()
    assert_safe(text)
    assert read_spec(text) == cluster.jobs()[0].spec


def test_in_a_notebook(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Notebook(hostile_cluster())
    monkeypatch.setenv("MNTRAIN_CLUSTER", "lab")
    assert_safe(book.load())
    word = WORDS.replace("\n", "").replace("\r", "")
    try:
        for name in sorted(TABLE.keys() - REAL_CLUSTER):
            for rest in ([], [JOB], [word], [JOB, word], ["--help"], *MORE.get(name, [])):
                line = (
                    shlex.join([name, *SHORTENED.get(name, []), *rest])
                    .replace("\n", " ")
                    .replace("\r", " ")
                )
                for end in ("", " --json", *([" --traceback"] if rest == [word] else [])):
                    result = book.run(f"%mntrain {line}{end}")
                    shown = STYLING.sub("", result.stdout + result.stderr)
                    assert_safe(shown, what=line)
                    for output in result.outputs:
                        for kind, content in output.data.items():
                            if kind.startswith("text/"):
                                assert_safe(content, what=(line, kind))
                        html = output.data.get("text/html", "")
                        assert "<script" not in html, line
                        assert "<a " not in html, line
    finally:
        book.close()


@pytest.mark.parametrize("action", ["join", "run", "drain", "resume", "offer", "leave"])
def test_an_agent_says_nothing_hostile(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [action, *(["mnt-" + WORDS] if action == "join" else [])]
    for end in ([], ["--json"], ["--traceback"], ["--name", WORDS]):
        assert agent_main.run([*words, "--state-dir", str(tmp_path / WORDS), *end])
        captured = capsys.readouterr()
        assert_safe(captured.out + captured.err, what=(words, end))
