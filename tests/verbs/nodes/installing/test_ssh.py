"""ssh: what it is told, what its messages mean, and that no word becomes two."""

from __future__ import annotations

import ast
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import NodeError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.nodes.installing import look
from jupyter_mntrain.verbs.nodes.installing.facts import driver_python, read_facts
from jupyter_mntrain.verbs.nodes.installing.plan import look_command
from jupyter_mntrain.verbs.nodes.installing.ssh import Ssh
from jupyter_mntrain.verbs.nodes.installing.target import SshTarget, parse_target
from tests.verbs.nodes.installing.conftest import StandIn

HERE = driver_python()
HOSTILE = ["a b", "it's", '"', "$HOME", "`id`", "a;b", "\\", "é", "$(touch x)", "--", "*"]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("wopr", SshTarget(host="wopr")),
        ("ann@wopr", SshTarget(host="wopr", user="ann")),
        ("ann@wopr:2222", SshTarget(host="wopr", user="ann", port=2222)),
        ("10.0.0.1:22", SshTarget(host="10.0.0.1", port=22)),
        ("ann@[fe80::1]:22", SshTarget(host="fe80::1", user="ann", port=22)),
        ("my_alias.lan", SshTarget(host="my_alias.lan")),
        ("ann@corp.org@wopr", SshTarget(host="wopr", user="ann@corp.org")),
    ],
)
def test_a_target_is_read_and_written_alike(text: str, target: SshTarget) -> None:
    assert parse_target(text) == target
    assert str(target) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "-oProxyCommand=id", "ann@-x", "-l@wopr", "a b", "wopr;id", "wopr:0", "wopr:70000"),
        *("wopr:", "@wopr", "ann@", "wopr/x", "wopr\n", "$(id)", "fe80::1"),
    ],
)
def test_what_could_be_an_option_or_a_command_is_no_target(text: str) -> None:
    with pytest.raises(SpecError):
        parse_target(text)


def test_ssh_never_asks_and_gets_one_command(stand_in: StandIn) -> None:
    said = Ssh(parse_target("ann@wopr:2222")).run("echo $((1 + 1)); cat", stdin=b"x", timeout_s=9)
    assert (said.code, said.out) == (0, "2\nx")
    words = ast.literal_eval(stand_in.log.read_text())
    assert "BatchMode=yes" in words
    assert words[words.index("-p") + 1] == "2222"
    assert words[-3:-1] == ["--", "ann@wopr"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Host key verification failed.", Kind.HOST_KEY),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", Kind.HOST_KEY),
        ("ann@wopr: Permission denied (publickey).", Kind.NO_LOGIN),
        ("Received disconnect: Too many authentication failures", Kind.NO_LOGIN),
        ("ssh: Could not resolve hostname wopr: Name or service not known", Kind.UNREACHABLE),
        ("ssh: connect to host wopr port 22: Connection refused", Kind.CONNECTION_REFUSED),
        ("ssh: connect to host wopr port 22: No route to host", Kind.UNREACHABLE),
        ("ssh: connect to host wopr port 22: Connection timed out", Kind.UNREACHABLE),
        ("kex_exchange_identification: Connection closed by remote host", Kind.BROKEN_OFF),
        ("Bad configuration option: foo", Kind.NO_SSH),
    ],
)
def test_each_failure_of_ssh_has_a_kind_a_host_and_a_fix(
    stand_in: StandIn, message: str, kind: Kind
) -> None:
    stand_in.fail(message)
    with pytest.raises(NodeError) as caught:
        Ssh(parse_target("ann@wopr")).run("true", timeout_s=9)
    problem = caught.value.problem
    assert (problem.kind, problem.node) == (kind, "ann@wopr")
    assert problem.fix


def test_no_ssh_at_all_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NodeError) as caught:
        Ssh(parse_target("wopr")).run("true", timeout_s=9)
    assert caught.value.kind is Kind.NO_SSH


def test_a_command_that_hangs_is_named(stand_in: StandIn) -> None:
    with pytest.raises(NodeError) as caught:
        Ssh(parse_target("wopr")).run("exec sleep 60", timeout_s=0.3)
    assert caught.value.kind is Kind.NO_ANSWER


@pytest.mark.parametrize("word", HOSTILE)
def test_no_word_of_the_user_is_read_by_a_shell(stand_in: StandIn, word: str) -> None:
    command = look_command(HERE, f"envs/{word}", None)
    done = Ssh(parse_target("wopr")).run(command, stdin=Path(look.__file__), timeout_s=30)
    facts = read_facts(done.out, "wopr")
    assert facts.where == str(stand_in.home / "envs" / word)
    assert facts.version[:2] == HERE
    assert facts.environment is None
    assert sorted(stand_in.home.iterdir()) == []


def test_the_look_finds_the_packages_of_the_interpreter_that_it_is_given(
    stand_in: StandIn,
) -> None:
    command = look_command(HERE, None, sys.executable)
    done = Ssh(parse_target("wopr")).run(command, stdin=Path(look.__file__), timeout_s=30)
    facts = read_facts(f"Welcome to wopr!\n{done.out}", "wopr")
    assert facts.used == sys.executable
    assert facts.environment is not None
    assert "jupyter-mntrain" in facts.environment.packages
    assert facts.memberships == ()


def test_the_look_finds_a_port_at_which_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert look.listens(port)
        assert look.free_port(port) > port
    assert not look.listens(look.free_port(port))


def test_no_python_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    shell = shlex.split(look_command((3, 99), None, None))[-1]
    done = subprocess.run(
        ["/bin/sh", "-c", shell], env={"PATH": str(tmp_path), "HOME": str(tmp_path)}, check=False
    )
    assert done.returncode == 127


def test_an_answer_that_is_none_is_named() -> None:
    for output in ("", "Welcome!", "{}"):
        with pytest.raises(NodeError):
            read_facts(output, "wopr")
