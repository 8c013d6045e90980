"""Output schema: writes the JSON schema of what ``--json`` prints, made of the records.

python -m scripts.output_schema [--check]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.verbs.answers import ANSWERS
from scripts.figures import describe

FILE = Path(__file__).resolve().parents[1] / "docs/output.schema.json"
ERROR = "error"
"""What stderr has where a command fails."""


def schema() -> dict[str, Any]:
    """The whole schema: each command's answers below ``properties``, by its name."""
    types = {
        (command, at): one for command, answers in ANSWERS.items() for at, one in enumerate(answers)
    } | {(ERROR, 0): Problem}
    made, components = msgspec.json.schema_components(types.values())
    for one in components.values():
        if "description" in one:  # a docstring, of which the first line says what it is
            one["description"] = one["description"].partition("\n")[0]
    describe(components)
    found: dict[str, list[Any]] = {}
    for (command, _), one in zip(types, made, strict=True):
        found.setdefault(command, []).append(one)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mntrain --json",
        "description": "What each command prints with --json, by its name; errors, on stderr.",
        "type": "object",
        "properties": {
            command: one[0] if len(one) == 1 else {"anyOf": one} for command, one in found.items()
        },
        "$defs": components,
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text())
        return 0
    if FILE.read_text() == text():
        return 0
    sys.stderr.write(f"{FILE.name} is outdated. Fix: python -m scripts.output_schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
