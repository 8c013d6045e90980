"""Given paths: arguments of a script that look like relative paths of what it reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from jupyter_mntrain.doctor.script.needs import ScriptNeeds, first_folder

_FILE: Final = re.compile(
    r"(?![-/~])[^:=\s]+\.(jsonl?|txt|[ct]sv|ya?ml|toml|ini|cfg|pt|pth|bin|np[yz]|parquet|arrow"
    r"|safetensors|model|pkl|h5|gz|zst)",
    re.IGNORECASE,
)
_MADE: Final = re.compile(
    r"out|save|log|result|report|metric|dump|write|resume|checkpoint|ckpt|last"
)
"""In the name of an option, or of a file: the script makes it, or did so on one node alone."""


def given_paths(arguments: Sequence[str], script: ScriptNeeds) -> Iterator[str]:
    """Those that it is not seen to read or to write itself."""
    known = {one.what for one in script.reads}
    made = {first_folder(one.what) for one in script.writes}
    option = ""
    for word in arguments:
        if word.startswith("-"):
            option, has_value, value = word.partition("=")
            if not has_value:
                continue
        else:
            value = word
        names = f"{option} {value}".lower()
        option = ""
        if not _FILE.fullmatch(value) or _MADE.search(names):
            continue
        if value not in known and first_folder(value) not in made:
            yield value
