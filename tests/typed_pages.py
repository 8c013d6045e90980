"""Typed pages: the numbered steps of a page of the documentation, and typing them on a host."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import nbformat

from tests.netlab import Host

STEP = re.compile(r"^\d+\. ", re.MULTILINE)
BLOCK = re.compile(r"^   ```(\w*)\n(.*?)^   ```$", re.MULTILINE | re.DOTALL)
ENOUGH_S = 900.0


class Step(NamedTuple):
    """Lines to type in one of the numbered steps.

    Args:
        text: of the whole step.
        language: empty for a shell; ``python`` for cells of a notebook, one a line.
    """

    text: str
    language: str
    lines: tuple[str, ...]


def steps(page: Path) -> Iterator[Step]:
    """The blocks of a page's numbered steps, in order."""
    for text in STEP.split(page.read_text())[1:]:
        for language, block in BLOCK.findall(text):
            yield Step(text, language, tuple(line.strip() for line in block.splitlines()))


def shell(line: str) -> list[str]:
    """A line as a user types it in a shell that has the package's environment, at home."""
    place = f"{Path(sys.executable).parent}{os.pathsep}$PATH"
    return ["/bin/bash", "-c", f'cd; PATH="{place}"; {line}']


def typed(host: Host, line: str, environment: Mapping[str, str] | None = None) -> str:
    """What a line prints."""
    done = host.run(shell(line), timeout_s=ENOUGH_S, environment=environment)
    assert done.returncode == 0, f"{host.name}: {line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def live_views(
    host: Host, lines: tuple[str, ...], environment: Mapping[str, str] | None = None
) -> int:
    """Execute lines as cells of a notebook; the number of live views in it."""
    path = host.home / "first.ipynb"
    cells = [nbformat.v4.new_code_cell(line) for line in lines]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    typed(host, f"jupyter execute --inplace {path.name}", environment)
    outputs = [one for cell in nbformat.read(path, 4).cells for one in cell.get("outputs", ())]
    assert not [one for one in outputs if one.output_type == "error"], outputs
    return sum("application/vnd.mntrain.job+json" in one.get("data", {}) for one in outputs)
