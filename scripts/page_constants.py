"""Print the constants that page and picture share, as TypeScript: the defaults of settings."""

from jupyter_mntrain.model import tunables

SHARED = {
    "MANY_RANKS": "picture.many_ranks",
    "MOST_TEXTS": "figures.texts",
    "SHORT_RUN_S": "picture.short_run_s",
    "ZOOM_BELOW": "picture.zoom_below",
}

settings = {one.key: one for one in tunables.all_tunables()}
for name, key in SHARED.items():
    print(f"/** {settings[key].reason} */")
    print(f"export const {name} = {settings[key].default:g};")
