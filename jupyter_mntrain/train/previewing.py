"""Previewing: ``python -m …train.previewing RECIPE`` reads the data, and prints a preview as JSON.

What goes wrong is printed as JSON, too: a :class:`~jupyter_mntrain.model.failure.problem.Problem`.
"""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

# Before anything imports transformers: a preview never asks the hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.model.lazy import heavy_imports
from jupyter_mntrain.recipe.parse import load_recipe


def main(argv: list[str] | None = None) -> int:
    """Print the preview, and return the exit code: that of the error if there is one."""
    parser = argparse.ArgumentParser(prog="python -m jupyter_mntrain.train.previewing")
    parser.add_argument("recipe", help="a TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.FIELD=VALUE")
    arguments = parser.parse_args(argv)
    # torch and transformers take seconds
    with heavy_imports():
        from jupyter_mntrain.train.prepare import preview
    try:
        said: object = preview(load_recipe(arguments.recipe, arguments.set))
        exit_code = 0
    except OSError as problem:
        error: MntrainError = RecipeError(str(problem), fix="check the file it names")
        said, exit_code = error.problem, error.exit_code
    except MntrainError as error:
        said, exit_code = error.problem, error.exit_code
    sys.stdout.buffer.write(msgspec.json.encode(said))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
