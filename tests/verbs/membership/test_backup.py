"""``driver backup`` and ``driver restore``, as typed; and a cluster whose authority has moved."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from jupyter_mntrain.trust import backup as backups
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory
from jupyter_mntrain.trust.joining.token import PREFIX
from tests.agent.live import free_port
from tests.waiting import until
from tests.wording import says

MNTRAIN = str(Path(sys.executable).with_name("mntrain"))
WORDS = "correct horse battery staple"


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(backups, "COST", 1 << 14)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pass").write_text(f"{WORDS}\n")

    def run(*words: str):
        code = main(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_passphrase_is_asked_for_twice_and_never_typed_as_an_argument(run, monkeypatch, tmp_path):
    DriverMembership.make("mine")
    answers = iter([WORDS, "another", WORDS, WORDS, WORDS])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    code, _, err = run("--cluster", "mine", "driver", "backup", "b")
    assert (code, (tmp_path / "b").exists()) == (2, False)
    assert says("the two passphrases differ", err)
    assert run("--cluster", "mine", "driver", "backup", "b")[0] == 0
    shutil.rmtree(clusters_directory() / "mine")
    assert run("driver", "restore", "b")[0] == 0
    assert DriverMembership.find("mine").authorized()
    assert run("driver", "backup", "b", WORDS)[0] == 2


def test_what_cannot_be_is_one_line_and_an_exit_code(run, tmp_path):
    words = ("--passphrase-file", "pass")
    assert run("--cluster", "none", "driver", "backup", "b", *words)[0] == 6
    DriverMembership.make("mine")
    assert run("--cluster", "mine", "driver", "backup", "b")[0] == 2, "nobody can be asked"
    assert run("--cluster", "mine", "driver", "backup", "b", "--passphrase-file", "no")[0] == 2
    assert run("--cluster", "mine", "driver", "backup", "no/b", *words)[0] == 2
    code, out, _ = run("--cluster", "mine", "--json", "driver", "backup", "b", *words)
    assert (code, json.loads(out)["cluster"]) == (0, "mine")
    code, _, err = run("driver", "restore", "b", *words)
    assert code == 2
    assert says("--replace", err)
    (tmp_path / "pass").write_text("wrong\n")
    assert run("driver", "restore", "b", *words, "--replace")[0] == 6


class Laptop:
    """A machine with a home of its own, whose cluster is named ``moved``."""

    def __init__(self, home: Path) -> None:
        home.mkdir()
        self._directory = home.parent
        self._environment = {**os.environ, "HOME": str(home), "MNTRAIN_CLUSTER": "moved"}
        for variable in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
            self._environment.pop(variable, None)

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(
                [MNTRAIN, *words],
                env=self._environment,
                cwd=self._directory,
                stdout=out,
                stderr=out,
                stdin=subprocess.PIPE,
            )

    def run(self, *words: str) -> str:
        log = self._directory / "command.log"
        process = self.start(*words, log=log)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(100) == 0, log.read_text()
        return log.read_text()

    def invite(self, name: str, address: str, log: Path) -> tuple[str, subprocess.Popen[bytes]]:
        """Invite a node, and start it. Returns where it listens, and its process."""
        invitation = log.with_suffix(".invitation")
        waits = self.start("invite", log=invitation)
        until(lambda: PREFIX in invitation.read_text(), "the token")
        token = next(word for word in invitation.read_text().split() if word.startswith(PREFIX))
        port = str(free_port(address))
        options = ("--listen", address, "--port", port, "--state-dir", str(log.with_suffix("")))
        agent = self.start("agent", "join", "--name", name, *options, log=log)
        assert agent.stdin is not None
        assert waits.stdin is not None
        agent.stdin.write(f"{token}\n".encode())
        agent.stdin.close()
        waits.stdin.close()
        assert waits.wait(60) == 0, invitation.read_text() + log.read_text()
        until(lambda: "listens on" in log.read_text(), f"{name} to listen")
        return f"{address}:{port}", agent


@pytest.mark.slow
def test_a_new_laptop_launches_on_old_nodes_and_invites_new_ones(tmp_path, loopback_addresses):
    (tmp_path / "pass").write_text(f"{WORDS}\n")
    (tmp_path / "hello.py").write_text("print('hello')")
    first, second = Laptop(tmp_path / "first"), Laptop(tmp_path / "second")
    agents = []
    try:
        old, agent = first.invite("old", next(loopback_addresses), tmp_path / "old.log")
        agents.append(agent)
        first.run("driver", "backup", "moved.bak", "--passphrase-file", "pass")
        second.run("driver", "restore", "moved.bak", "--passphrase-file", "pass")
        new, agent = second.invite("new", next(loopback_addresses), tmp_path / "new.log")
        agents.append(agent)
        both = ("--agent", old, "--agent", new)
        words = ("launch", "hello.py", "--member", "old:1", "--wait", "--json")
        assert json.loads(second.run(*both, *words))["state"] == "succeeded"
        assert says("2 nodes know about it", second.run(*both, "revoke", "new"))
        found = json.loads(second.run(*both, "--json", "members"))
        known = {one["member"]: one["revoked_s"] is None for one in found if one["role"] == "node"}
        assert known == {"old": True, "new": False}
    finally:
        for agent in agents:
            agent.terminate()
            agent.wait(20)
