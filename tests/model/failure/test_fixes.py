"""Fixes: one table has them all, and no other file."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.model.failure.fixes import FIXES, SPECIAL, fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from tests.rows import has_rows_for

ROOT = Path(jupyter_mntrain.__file__).parent

OWN_FIXES = ROOT / "doctor"
"""Each check has the fix of what it finds; docs/doctor.md has all of them."""

FAILURES = [*Kind][[*Kind].index(Kind.EXCEPTION) :]
"""In their order: causes of failed attempts, doubts about numbers, causes of stalls."""


def test_every_kind_of_failure_has_one_fix() -> None:
    no_fix = "kind '{}' has no fix: add one to FIXES in model/failure/fixes.py"
    has_rows_for((kind.value for kind in FAILURES), (kind.value for kind in FIXES), no_fix)
    assert len({*FIXES.values(), *SPECIAL.values()}) >= len(FIXES) - 2  # "launch it again"
    no_usual = "SPECIAL of model/failure/fixes.py has '{}', and FIXES has no usual fix of it"
    has_rows_for((kind for kind, _ in SPECIAL), FIXES, no_usual)


@pytest.mark.parametrize("kind", FIXES)
def test_a_fix_is_a_phrase_with_all_of_its_facts(kind: Kind) -> None:
    names = {name for _, name, _, _ in string.Formatter().parse(FIXES[kind]) if name}
    told = fix_of(kind, **dict.fromkeys(names, "this"))
    assert not told.endswith(".")
    assert "{" not in told


def test_no_problem_brings_a_fix_of_its_own() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {kind}"
        for path in ROOT.rglob("*.py")
        if OWN_FIXES not in path.parents
        # Parsing every module takes seconds, and most have none.
        if "Problem(" in (text := path.read_text())
        for call, kind in problems(ast.parse(text))
        if kind in {one.name for one in FAILURES}
    ]
    assert found == [], "Fix: write it into model/failure/fixes.py"


def problems(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Calls of ``Problem(kind=Kind.X, fix="…")``, and the kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = {one.arg: one.value for one in node.keywords}
            kind, fix = given.get("kind"), given.get("fix")
            is_text = isinstance(fix, ast.Constant | ast.JoinedStr)
            if node.func.id == "Problem" and is_text and isinstance(kind, ast.Attribute):
                yield node, kind.attr
