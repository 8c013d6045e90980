"""Registry of sources: each is what it declares, and no option of one has another meaning."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_mntrain.sources.registry import SOURCES, options_of, source_named, title_of
from jupyter_mntrain.verbs.command import verb_parser
from jupyter_mntrain.verbs.table import TABLE


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_is_what_the_registry_declares(name: str) -> None:
    source = source_named(name)
    assert source.name == name
    assert source.title == title_of(name)
    assert source.options() == options_of(name)


@pytest.mark.parametrize("name", SOURCES)
def test_a_launch_takes_every_option_of_a_source(name: str) -> None:
    parser = verb_parser(TABLE["launch"], "mntrain", ("--on", name))
    flags = {option.flag for option in options_of(name)}
    assert flags | {"--nodes", "--gpus", "--time", "--idle"} <= parser.value_options.keys()
    usual = verb_parser(TABLE["launch"], "mntrain")
    assert not flags & {*usual.value_options, *usual.flags}


def test_declaring_options_loads_no_library() -> None:
    code = "import sys; from jupyter_mntrain.sources import registry as r\n"
    code += "for name in r.SOURCES: r.options_of(name)\n"
    code += "print(*{'asyncio', 'httpx', 'lightkube'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
