"""Hostile text, records full of it, and what must never be shown of it."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec

from jupyter_mntrain.metrics.downsampled.prefix import Prefix

CLIPBOARD = "\x1b]52;c;bm8=\x07"
LINK = '\x1b]8;;javascript:x\x07\x1b]0;title\x07"><script>alert(1)</script>\x1b\\text\x1b]8;;\x1b\\'
HOSTILE = (
    f"{CLIPBOARD}\x1b[2J\x1b[8mhidden\x9b2J\x9d52;c;bm8=\x9c\x00\x7f\u202eabc\u2066\u200f\u061c"
    "\u2028\u2029\ufeff\u00ad\u200b\u2060\u3164\U000e0041<script>alert(1)</script>$\\frac{a$"
    "\r\nline two\t[red]markup[/red] {0} %s"
)
LONG = "A" * 100_000

IDENTITIES = frozenset(
    {"job_id", "node_id", "address", "addresses", "agent", "master_address", "entry", "uuid"}
    | {"boot_id", "instance", "mac", "python", "receiver", "sender"}
)
"""Fields that programs compare or dial, and whose form the tests need."""

STYLING = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K|\x1b\[\d+D|\r(?=\x1b)")
"""What the console itself writes: colors, and how it redraws a line."""

_JOINERS = frozenset("\u200c\u200d\u200b")


def unsafe(text: str) -> list[str]:
    """The characters that a terminal would obey or not show."""
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    found = {one for one in text if unicodedata.category(one) in bad or one in "\u3164\uffa0"}
    return sorted(map(ascii, found - set("\n\t")))


def assert_safe(text: str, *, what: object = "") -> None:
    assert not unsafe(text), (what, unsafe(text), ascii(text)[:2000])


def strings(data: Any) -> list[str]:
    """Every text in data, keys too."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [one for pair in data.items() for value in pair for one in strings(value)]
    if isinstance(data, list | tuple):
        return [one for value in data for one in strings(value)]
    return []


def poisoned(value: Any, poison: str = HOSTILE) -> Any:
    """The record with ``poison`` after each text that a person may read.

    Equal texts stay equal, so that what is looked up by its name is found.
    """
    if isinstance(value, msgspec.Struct):
        fields = {
            name: _poisoned(getattr(value, name), kind, poison)
            for name, kind in _fields(type(value)).items()
        }
        return msgspec.structs.replace(value, **fields)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **{k: poisoned(v, poison) for k, v in fields.items()})
    if isinstance(value, dict):
        return {poisoned(k, poison): poisoned(v, poison) for k, v in value.items()}
    if isinstance(value, str):
        return value + poison
    if isinstance(value, Prefix):
        return [poisoned(one, poison) for one in value]
    if isinstance(value, list | tuple):
        return type(value)(poisoned(one, poison) for one in value)
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.inspect.Type]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return {one.name: one.type for one in info.fields if one.name not in IDENTITIES}


def _poisoned(value: Any, kind: msgspec.inspect.Type, poison: str) -> Any:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            is_text = any(isinstance(one, msgspec.inspect.StrType) for one in types)
            is_name = any(isinstance(one, msgspec.inspect.LiteralType) for one in types)
            if isinstance(value, str):
                return value + poison if is_text and not is_name else value
            inner = [one for one in types if isinstance(one, _CONTAINERS)]
            is_whole = value is None or not inner
            return poisoned(value, poison) if is_whole else _poisoned(value, inner[0], poison)
        case msgspec.inspect.StrType():
            return value + poison
        case (
            msgspec.inspect.VarTupleType(item_type=item) | msgspec.inspect.ListType(item_type=item)
        ):
            assert isinstance(value, Sequence)
            return tuple(_poisoned(one, item, poison) for one in value)
        case msgspec.inspect.DictType(value_type=item):
            return {key: _poisoned(one, item, poison) for key, one in value.items()}
        case msgspec.inspect.StructType():
            return poisoned(value, poison)
    return value


_CONTAINERS = (
    msgspec.inspect.VarTupleType,
    msgspec.inspect.ListType,
    msgspec.inspect.DictType,
)
