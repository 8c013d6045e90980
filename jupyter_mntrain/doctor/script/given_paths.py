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


_PATH: Final = re.compile(r"(?![-/~])(?!.*://)[^\s:]*[./][^\s:]*")
"""What may be a relative path: a plain word may name anything."""


def given_paths(arguments: Sequence[str], script: ScriptNeeds) -> Iterator[str]:
    """Those that it is not seen to read or to write itself."""
    known = {one.what for one in script.reads}
    made = {first_folder(one.what) for one in script.writes}
    for value in _values(arguments):
        if _FILE.fullmatch(value) and value not in known and first_folder(value) not in made:
            yield value


def named_paths(arguments: Sequence[str]) -> Iterator[str]:
    """All that may be relative paths, whatever the script does with them."""
    return filter(_PATH.fullmatch, _values(arguments))


def _values(arguments: Sequence[str]) -> Iterator[str]:
    """Of arguments that do not look like what the script makes."""
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
        if not _MADE.search(names):
            yield value
