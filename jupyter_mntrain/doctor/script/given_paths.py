"""Given paths: script arguments that look like relative paths of files to read. Pure."""

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


_PATH: Final = re.compile(r"(?![-/~])(?!.*://)[^:]*[./][^:]*")
"""What may be a relative path."""
_OVERRIDE: Final = re.compile(r"\+{0,2}([\w./]+)=(.+)")
"""Of Hydra: ``data.path=x/train.json``."""
_WORD: Final = re.compile(r"(?![-/~])[^:=]+")
_OF_PATH: Final = re.compile(r"file|path|dir|folder|root|config|data|model|tokenizer")
"""In the name of an option: its value is rather a path, also if it is a plain word."""


def given_paths(arguments: Sequence[str], script: ScriptNeeds) -> Iterator[str]:
    """Yield the paths that the script itself is not seen to read or write."""
    known = {one.what for one in script.reads}
    made = {first_folder(one.what) for one in script.writes}
    for _, value in _values(arguments):
        if _FILE.fullmatch(value) and value not in known and first_folder(value) not in made:
            yield value


def named_paths(arguments: Sequence[str]) -> Iterator[str]:
    """Yield all arguments that may be relative paths, whatever the script does with them."""
    for option, value in _values(arguments):
        if _PATH.fullmatch(value) or (_OF_PATH.search(option) and _WORD.fullmatch(value)):
            yield value


def _values(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield arguments that do not look like output paths, each with its option's name."""
    option = ""
    for word in arguments:
        if word.startswith("-"):
            option, has_value, value = word.partition("=")
            if not has_value:
                continue
        elif not option and (override := _OVERRIDE.fullmatch(word)):
            option, value = override.groups()
        else:
            value = word
        of, option = option.lower(), ""
        if not _MADE.search(f"{of} {value.lower()}"):
            yield of, value
