"""Registry of sources: each is what it declares, and no option of one has another meaning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_mntrain.sources.registry import options_of, source_named, sources, title_of
from jupyter_mntrain.verbs.command import verb_parser
from jupyter_mntrain.verbs.table import TABLE


@pytest.mark.parametrize("name", sources())
def test_each_source_is_what_the_registry_declares(name: str) -> None:
    source = source_named(name)
    assert source.name == name
    assert source.title == title_of(name)
    assert source.options() == options_of(name)


@pytest.mark.parametrize("name", sources())
def test_a_launch_takes_every_option_of_a_source(name: str) -> None:
    parser = verb_parser(TABLE["launch"], "mntrain", ("--on", name))
    flags = {option.flag for option in options_of(name)}
    assert flags | {"--nodes", "--gpus", "--time", "--idle"} <= parser.value_options.keys()
    usual = verb_parser(TABLE["launch"], "mntrain")
    assert not flags & {*usual.value_options, *usual.flags}


def test_declaring_options_loads_no_library() -> None:
    code = "import sys; from jupyter_mntrain.sources import registry as r\n"
    code += "for name in r.sources(): r.options_of(name)\n"
    code += "print(*{'asyncio', 'httpx', 'lightkube'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_package_of_somebody_else_brings_a_backend(tmp_path: Path) -> None:
    """Named by an entry point alone: its options are taken, and it is asked for nodes."""
    (tmp_path / "flux_nodes.py").write_text(
        "from jupyter_mntrain.model.sources.source import SourceOption\n"
        "TITLE = 'Flux'\n"
        "OPTIONS = (SourceOption('bank', help='who pays', example='me'),)\n"
        "def source():\n"
        "    from jupyter_mntrain.sources.slurm.slurm_source import SlurmSource\n"
        "    return SlurmSource()\n"
    )
    told = tmp_path / "flux_nodes-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: flux-nodes\nVersion: 1.0\n")
    points = "[jupyter_mntrain.schedulers]\nflux = flux_nodes\ngone = no_such_module\n"
    (told / "entry_points.txt").write_text(points)
    code = (
        "from jupyter_mntrain.model.errors import SpecError\n"
        "from jupyter_mntrain.sources.registry import source_named, sources, title_of\n"
        "from jupyter_mntrain.verbs.command import verb_parser\n"
        "from jupyter_mntrain.verbs.table import TABLE\n"
        "parser = verb_parser(TABLE['launch'], 'mntrain', ('--on', 'flux'))\n"
        "print(*sources(), title_of('flux'), '--bank' in parser.value_options)\n"
        "print(type(source_named('flux')).__name__)\n"
        "for name in ('gone', 'pbs'):\n"
        "    try: source_named(name)\n"
        "    except SpecError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, kind, gone, unknown = done.stdout.splitlines()
    assert first == "flux gone kubernetes slurm Flux True"
    assert kind == "SlurmSource"
    assert "flux-nodes" in gone
    assert "pbs" in unknown
