"""Print what the page shares as TypeScript: defaults of settings, and a recipe's sections."""

import json

import msgspec

from jupyter_mntrain.model import tunables
from jupyter_mntrain.recipe.sections import Recipe

SHARED = {
    "LARGEST_RECIPE_BYTES": "verbs.recipe_bytes",
    "MANY_RANKS": "picture.many_ranks",
    "MOST_TEXTS": "figures.texts",
    "SHORT_RUN_S": "picture.short_run_s",
    "ZOOM_BELOW": "picture.zoom_below",
}

settings = {one.key: one for one in tunables.all_tunables()}
for name, key in SHARED.items():
    print(f"/** {settings[key].reason} */")
    print(f"export const {name} = {settings[key].default:g};")
sections = sorted(field.name for field in msgspec.structs.fields(Recipe))
print("/** Sections of a recipe. */")
print(f"export const RECIPE_SECTIONS = {json.dumps(sections)};")
