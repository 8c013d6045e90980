"""Wheel: it contains the built extension, and no files that users do not need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path, PurePath

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DATA = "jupyter_mntrain-0.1.0.data/data"
EXTENSION = f"{DATA}/share/jupyter/labextensions/jupyter-mntrain"
MOST_FIRST_BYTES = 200_000
"""What every page loads before anything is opened: plugins, sidebar, style sheets."""
MOST_BUNDLE_BYTES = 600_000
"""All of it. Parts that are loaded apart have some modules in common, each its own copy."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    # With pip's own cache: what builds the wheel is not downloaded for every run.
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    subprocess.run([*command, str(ROOT)], check=True, env=environment)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_brings_the_extension_and_enables_the_server_part(wheel):
    names = set(wheel.namelist())
    assert f"{EXTENSION}/install.json" in names
    package = json.loads(wheel.read(f"{EXTENSION}/package.json"))
    assert f"{EXTENSION}/{package['jupyterlab']['_build']['load']}" in names
    config = f"{DATA}/etc/jupyter/jupyter_server_config.d/jupyter_mntrain.json"
    enabled = json.loads(wheel.read(config))["ServerApp"]["jpserver_extensions"]
    assert enabled == {"jupyter_mntrain": True}


def test_the_wheel_holds_no_tests_and_no_sources_of_the_extension(wheel):
    first = {name.split("/")[0] for name in wheel.namelist()}
    assert first == {
        "jupyter_mntrain",
        "jupyter_mntrain-0.1.0.data",
        "jupyter_mntrain-0.1.0.dist-info",
    }
    assert not any(name.endswith((".ts", ".tsx", ".map")) for name in wheel.namelist())
    assert not any(name.startswith("jupyter_mntrain/labextension/") for name in wheel.namelist())


def test_the_wheel_brings_its_license(wheel):
    folder = "jupyter_mntrain-0.1.0.dist-info"
    assert wheel.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    metadata = wheel.read(f"{folder}/METADATA").decode().splitlines()
    assert "License-Expression: Apache-2.0" in metadata
    assert "License-File: LICENSE" in metadata


def test_what_every_page_loads_is_small(wheel):
    scripts = {
        PurePath(entry.filename).name: wheel.read(entry)
        for entry in wheel.infolist()
        if entry.filename.startswith(f"{EXTENSION}/static/") and entry.filename.endswith(".js")
    }
    (entry,) = (text for name, text in scripts.items() if name.startswith("remoteEntry."))
    # The entry names the chunks that JupyterLab asks for: those of the plugins and of the style.
    exposed = re.findall(rb'"\./(extension|style)":\(\)=>([^"]*)', entry)
    assert {name for name, _ in exposed} == {b"extension", b"style"}
    chunks = {
        number.decode() for _, code in exposed for number in re.findall(rb"\.e\((\d+)\)", code)
    }
    first = [text for name, text in scripts.items() if name.split(".")[0] in chunks]
    assert len(first) == len(chunks) >= 2
    assert len(entry) + sum(map(len, first)) <= MOST_FIRST_BYTES
    assert sum(map(len, scripts.values())) <= MOST_BUNDLE_BYTES


def test_the_wheel_brings_the_files_that_people_read(wheel):
    brought = set(wheel.namelist())
    assert "jupyter_mntrain/tunables.toml" in brought
    for recipe in (ROOT / "jupyter_mntrain" / "recipe" / "builtin").glob("*.toml"):
        assert f"jupyter_mntrain/recipe/builtin/{recipe.name}" in brought
