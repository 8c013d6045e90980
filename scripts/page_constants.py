"""Print what the page shares with Python as TypeScript: constants, and a recipe's sections."""

import ast
import importlib
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jupyter_mntrain.recipe.sections import Recipe

SHARED = {
    "LARGEST_RECIPE_BYTES": "jupyter_mntrain.verbs.panel.targets",
    "MANY_RANKS": "jupyter_mntrain.show.picture.theme",
    "MOST_DIFFERENCE_S": "jupyter_mntrain.model.lifecycle.clock",
    "MOST_TEXTS": "jupyter_mntrain.metrics.downsampled.samples",
    "SHORT_RUN_S": "jupyter_mntrain.show.picture.painter",
    "ZOOM_BELOW": "jupyter_mntrain.show.picture.link_chart",
}


def described(name: str, module: str) -> Iterator[str]:
    """The constant and the text below it, in TypeScript."""
    found = importlib.import_module(module)
    body = ast.parse(Path(found.__file__ or "").read_text(encoding="utf-8")).body
    (text,) = (
        ast.literal_eval(after.value)
        for one, after in itertools.pairwise(body)
        if isinstance(one, ast.Assign | ast.AnnAssign)
        and name in ast.unparse(one).split(" = ")[0].split(":")
        and isinstance(after, ast.Expr)
    )
    yield f"/** {' '.join(text.split())} */"
    yield f"export const {name} = {getattr(found, name):g};"


for name, module in SHARED.items():
    print(*described(name, module), sep="\n")
sections = sorted(field.name for field in msgspec.structs.fields(Recipe))
print("/** Sections of a recipe. */")
print(f"export const RECIPE_SECTIONS = {json.dumps(sections)};")
