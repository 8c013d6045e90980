"""docs/by_hand.md, executed as it stands on two simulated machines: from nothing to a live plot."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
import pytest

from jupyter_mntrain.trust.joining.token import PREFIX
from tests.netlab import Host, Lab, missing, own_lab
from tests.searches import runs_all
from tests.test_house import ROOT
from tests.waiting import until

pytestmark = [
    pytest.mark.netlab,
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(missing() is not None, reason=f"no lab: {missing()}"),
    pytest.mark.skipif(not runs_all(), reason="it takes minutes: set MNTRAIN_ALL_CASES"),
]

PAGE = ROOT / "docs" / "by_hand.md"
STEP = re.compile(r"^\d+\. ", re.MULTILINE)
BLOCK = re.compile(r"^   ```(\w*)\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)
ENOUGH_S = 900.0


BUSY = "[agent]\ndetached_start_s = 120.0\n"
"""These machines share two cores with whatever else is tested."""


class Step(NamedTuple):
    """A numbered step: whether it is for both machines, and what to type there."""

    is_for_both: bool
    language: str
    lines: tuple[str, ...]


def steps() -> Iterator[Step]:
    for text in STEP.split(PAGE.read_text())[1:]:
        for language, block in BLOCK.findall(text):
            lines = tuple(line.strip() for line in block.splitlines())
            yield Step(text.startswith("**Both machines**"), language, lines)


@pytest.fixture
def two() -> Iterator[Lab]:
    """Machines that know nothing of each other."""
    with own_lab(2) as made:
        for host in made.hosts:
            folder = host.home / ".config" / "mntrain"
            folder.mkdir(parents=True)
            (folder / "config.toml").write_text(BUSY)
        yield made


def test_the_page_is_executed_as_it_stands(two: Lab, tmp_path: Path) -> None:
    first, token, shown = two.host("node1"), "TOKEN", 0
    for step in steps():
        for host in two.hosts if step.is_for_both else [first]:
            if step.language == "python":
                shown += live_pictures(host, step.lines)
            for line in step.lines if not step.language else ():
                if "invite" in line:
                    token = invited(host, line)
                else:
                    typed(host, line.replace("TOKEN", token))
    assert token.startswith(PREFIX)
    assert (first.home / "first-run.png").read_bytes().startswith(b"\x89PNG")
    assert shown == 1, "the cell that launches has a live view"


def shell(line: str) -> list[str]:
    """A line as a user types it in a shell that has the package's environment, at home."""
    place = f"{Path(sys.executable).parent}{os.pathsep}$PATH"
    return ["/bin/sh", "-c", f'cd; PATH="{place}"; {line}']


def typed(host: Host, line: str) -> None:
    done = host.run(shell(line), timeout_s=ENOUGH_S)
    assert done.returncode == 0, f"{host.name}: {line}\n{done.stdout}\n{done.stderr}"


def invited(host: Host, line: str) -> str:
    """The token that a command prints, which goes on in its own terminal."""
    log = host.home / "invite.log"
    with log.open("wb") as out:
        host.popen(shell(f"exec {line}"), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    until(lambda: PREFIX in log.read_text(), f"{log} to say a token")
    return next(word for word in log.read_text().split() if word.startswith(PREFIX))


def live_pictures(host: Host, lines: tuple[str, ...]) -> int:
    """Execute lines as cells of a notebook; the number of live views in it."""
    path = host.home / "first.ipynb"
    cells = [nbformat.v4.new_code_cell(line) for line in lines]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    typed(host, f"jupyter execute --inplace {path.name}")
    outputs = [one for cell in nbformat.read(path, 4).cells for one in cell.get("outputs", ())]
    assert not [one for one in outputs if one.output_type == "error"], outputs
    return sum("application/vnd.mntrain.job+json" in one.get("data", {}) for one in outputs)
