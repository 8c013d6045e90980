from __future__ import annotations

import io
import socket
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.agent.options import parse_options
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.node import Interface
from jupyter_mntrain.trust.joining.token import new_token, write_token

TOKEN = write_token(new_token("node", b"a" * 32, 2e9))
DRIVERS = write_token(new_token("driver", b"a" * 32, 2e9))
ETHERNET = Interface(name="eth0", kind="ethernet", is_up=True, addresses=("172.16.5.4/12",))


def test_without_options_it_listens_everywhere_and_is_named_like_the_host():
    options = parse_options(["run"])
    assert options.settings.bound == ("0.0.0.0",)
    assert options.settings.addresses([ETHERNET]) == ("172.16.5.4:8765",)
    assert not options.settings.is_local([ETHERNET])
    assert (options.settings.port, options.settings.python) == (8765, sys.executable)
    assert options.state == Path.home() / ".local/state/mntrain/nodes" / options.settings.name
    assert options.stays


def test_on_a_hub_it_is_named_like_the_person_too(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "lab1")
    monkeypatch.setenv("JUPYTERHUB_USER", "ada@uni.example")
    assert parse_options(["run"]).settings.name == "lab1-ada-uni.example"
    monkeypatch.setattr(socket, "gethostname", lambda: "jupyter-ada")  # KubeSpawner's
    monkeypatch.setenv("JUPYTERHUB_USER", "ada")
    assert parse_options(["run"]).settings.name == "jupyter-ada"


def test_with_loopback_left_alone_it_is_local():
    assert parse_options(["run"]).settings.is_local([])
    assert parse_options(["run"]).settings.addresses([]) == ("127.0.0.1:8765",)


def test_everything_may_be_given(tmp_path):
    (tmp_path / "token").write_text(f"\n{TOKEN}\n")
    (tmp_path / "token").chmod(0o600)
    words = f"join --token-file {tmp_path / 'token'} --name n1"
    words += " --listen 10.0.0.1 --listen 10.1.0.1 --listen 10.0.0.1"
    words += " --address lab.example:443 --address 10.9.0.1 --no-run"
    words += " --port 9000 --state-dir here --link-capacity eth1=1gbit --python /py"
    options = parse_options(words.split())
    assert options.token is not None
    assert options.settings.bound == ("10.0.0.1", "10.1.0.1")
    assert options.settings.addresses([ETHERNET]) == ("lab.example:443", "10.9.0.1:9000")
    assert (options.settings.name, options.settings.port) == ("n1", 9000)
    assert options.capacities["eth1"].bytes_per_s == 1.25e8
    assert options.state.is_absolute()
    assert options.settings.python == "/py"
    assert not options.stays


def test_a_slot_gives_name_and_state_and_any_port(tmp_path):
    options = parse_options(["run", "--slot", str(tmp_path / "slurm-0"), "--address", "pod-0"])
    assert options.is_slot
    assert (options.settings.name, options.state) == ("slurm-0", tmp_path / "slurm-0")
    assert (options.settings.port, options.settings.advertised) == (0, ("pod-0:0",))
    assert parse_options(["run", "--slot", "a/b", "--port", "9000"]).settings.port == 9000


@pytest.mark.wording
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs an action"),
        (["start"], "no action 'start'"),
        (["lave"], "use leave"),
        (["join"], "no token was given"),
        (["join", TOKEN], "do not put a token on the command line"),
        (["join", "--token-file", "/nowhere/token"], "/nowhere/token cannot be read"),
        (["run", "--name", "a/b"], "node name 'a/b'"),
        (["run", "--name", "n" * 50], "is longer than 49 characters"),
        (["run", "--listen", "localhost"], "localhost is not an IPv4 address"),
        (["run", "--listen", "::1"], "::1 is not an IPv4 address"),
        (["run", "--listen", "0.0.0.0"], "0.0.0.0 is not the address of one machine"),
        (["run", "--address", "0.0.0.0"], "not an address others can connect to"),
        (["run", "--address", "a:b:c"], "not an address others can connect to"),
        (["run", "--address", ""], "not an address others can connect to"),
        (["run", "--port", "0"], "--port: '0' is not a whole number from 1 to 65535"),
        (["run", "--port", "70000"], "--port: '70000' is not a whole number from 1 to 65535"),
        (["run", "--port", "http"], "--port"),
        (["run", "--link-capacity", "eth1"], "--link-capacity 'eth1'"),
        (["run", "--link-capacity", "eth1=fast"], "'fast' is not a link rate"),
        (["run", "--nonsense"], "--nonsense"),
        (["run", "--no-auth"], "--no-auth"),
        (["run", "--lisen", "10.0.0.1"], "use --listen"),
        (["leave", "--port", "1"], "--port"),
        (["run", "--slot", "job/slurm-0", "--name", "n1"], "omit --name and --state-dir"),
        (["run", "--slot", "job/slurm 0"], "node name 'slurm 0'"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(words, says):
    with pytest.raises(MntrainError) as error:
        parse_options(words)
    assert says in str(error.value)
    assert "Fix: " in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.wording
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TOKEN[:-3], "the token"),
        ("password", "not a token"),
        (DRIVERS, "mntrain driver join"),
        ("", "no token was given"),
    ],
    ids=["cut off", "a password", "for a driver", "empty"],
)
def test_a_token_that_is_none_is_refused(monkeypatch, text, says):
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(MntrainError) as error:
        parse_options(["join"])
    assert says in str(error.value)
    assert error.value.fix


def test_no_token_is_a_fault_of_the_command_line(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(SpecError):
        parse_options(["join"])
