"""Error output: what is printed where the terminal's encoding lacks our marks."""

from __future__ import annotations

import ast
import codecs
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.command_line.error_output import replace_unencodable

SCRIPT = """
from jupyter_mntrain.command_line.error_output import replace_unencodable
replace_unencodable()
print("✓ done, 3 × 4 → 12\u202fs … Zoë 漢")
"""


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("utf-8", "✓ done, 3 × 4 → 12\u202fs … Zoë 漢"),
        ("latin-1", "+ done, 3 × 4 -> 12 s ... Zoë ?"),
        ("ascii", "+ done, 3 x 4 -> 12 s ... Zoe ?"),
    ],
)
def test_marks_that_a_terminal_lacks_are_others(encoding: str, printed: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", SCRIPT]
    ran = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert ran.stdout.decode(encoding).rstrip("\n") == printed


def said(source: str) -> set[str]:
    """The characters of a module's strings, except for those that only document it."""
    tree = ast.parse(source)
    documents = {
        id(one.value)
        for one in ast.walk(tree)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
    }
    texts = (
        one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and id(one) not in documents
    )
    return {letter for text in texts for letter in text if not letter.isascii()}


@pytest.mark.parametrize("room", ["show", "verbs", "model", "command_line", "cluster", "metrics"])
def test_all_that_we_print_has_a_mark_in_ascii(room: str) -> None:
    replace_unencodable()
    files = (Path(jupyter_mntrain.__file__).parent / room).rglob("*.py")
    letters = set().union(*(said(one.read_text()) for one in files)) - set("\ufeff")
    lost = {one for one in letters if codecs.encode(one, "ascii", "mntrain") == b"?"}
    assert not lost
