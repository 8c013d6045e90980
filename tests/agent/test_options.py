from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jupyter_mntrain.agent.options import parse_options
from jupyter_mntrain.model.errors import SpecError


def test_without_options_it_is_private_and_named_like_the_host():
    options = parse_options([])
    assert options.bound == ("127.0.0.1",)
    assert (options.port, options.cluster, options.python) == (8765, "default", sys.executable)
    assert options.name
    assert options.state == Path.home() / ".local/state/mntrain/nodes" / options.name


def test_everything_may_be_given():
    words = "--cluster lab --name n1 --address 10.0.0.1 --address 10.1.0.1 --address 10.0.0.1"
    words += " --port 9000 --state-dir here --link-capacity eth1=1gbit --python /py"
    options = parse_options(words.split())
    assert options.bound == ("10.0.0.1", "10.1.0.1")
    assert (options.cluster, options.name, options.port) == ("lab", "n1", 9000)
    assert options.capacities["eth1"].bytes_per_s == 1.25e8
    assert options.state.is_absolute()
    assert options.python == "/py"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--cluster", "a b"], "cluster name 'a b' has characters"),
        (["--cluster", "a" * 41], "is longer than 40 characters"),
        (["--cluster", ""], "cluster name ''"),
        (["--name", "a/b"], "node name 'a/b'"),
        (["--name", "n" * 55], "is longer than 54 characters"),
        (["--address", "localhost"], "localhost is no IPv4 address"),
        (["--address", "::1"], "::1 is no IPv4 address"),
        (["--address", "0.0.0.0"], "0.0.0.0 is not one machine's address"),
        (["--port", "0"], "--port 0 is no port"),
        (["--port", "70000"], "--port 70000 is no port"),
        (["--port", "http"], "--port"),
        (["--link-capacity", "eth1"], "--link-capacity 'eth1'"),
        (["--link-capacity", "eth1=fast"], "'fast' is not a link rate"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_what_is_wrong_is_named_with_its_fix(words, says):
    with pytest.raises(SpecError) as error:
        parse_options(words)
    assert says in str(error.value)
    assert "Fix: " in str(error.value)
    assert "\n" not in str(error.value)
