"""Finds the sentences that the scrambler left readable, by what problems have said."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from tests.scrambling.scrambled_words import (
    FOREIGN,
    SEVERAL_WORDS,
    VOCABULARY,
    Scrambled,
    transformed,
)

NO_SENTENCES = tuple(VOCABULARY["no_sentences"])


def _readable(tree: ast.AST) -> Iterator[str]:
    """Literals of several words that are no docstrings."""
    done = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    done |= {id(n) for n in ast.walk(tree) if isinstance(n, Scrambled)}
    for node in ast.walk(tree):
        value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
        if (
            isinstance(value, str)
            and id(node) not in done
            and SEVERAL_WORDS.search(value)
            and not value.strip().startswith(NO_SENTENCES)
        ):
            yield value.strip()


def missed(package: Path, seen: str) -> dict[str, str]:
    """Literals that are readable in a problem that was noted: where each is written."""
    sentences = "\n".join({json.loads(line) for line in seen.splitlines()})
    found = {}
    for path in sorted(package.rglob("*.py")):
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        if name == FOREIGN:
            continue
        # Of most modules no literal was said, and scrambling all of them again takes ten seconds.
        if any(one in sentences for one in _readable(ast.parse(path.read_bytes()))):
            literals = _readable(transformed(name, path.read_bytes()))
            found |= {one: name for one in literals if one in sentences}
    return found
