"""Hidden: finds the secrets of a job, and masks them in records and other answers. Pure.

What is hidden in one place is hidden in all: a value that a spec must not show is masked in every
text of every record, whatever field somebody adds tomorrow.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from urllib.parse import quote

import msgspec

from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.text.secrets import (
    HIDDEN,
    is_secret,
    is_switch,
    masked,
    secret_words,
    shown,
    shown_words,
)

T = TypeVar("T")

_ID = re.compile(r"[0-9a-f]{32}|j-[0-9a-f]{8}")
"""A node's or a job's: by these, answers are put together."""
SHORTEST_LINE = 8
"""Characters of a line of a secret, like a private key, that is hidden by itself."""
_WITHOUT_TEXT = (bool, int, float, bytes, NoneType)


class _Hiding(NamedTuple):
    """What to hide: these values, and what a spec and a session do not show."""

    values: tuple[str, ...]
    is_for_viewer: bool
    hides_output: bool = False
    """Whether what ranks of the job print is kept back, too."""

    def show(self, spec: JobSpec) -> JobSpec:
        """Return a spec as it may be seen: by a read-only driver without its files and the values
        of its variables.
        """
        seen = shown_spec(spec)
        if not self.is_for_viewer:
            return seen
        environment = dict.fromkeys(spec.environment, HIDDEN)
        return msgspec.structs.replace(seen, environment=environment, files={})

    def of(self, spec: JobSpec) -> _Hiding:
        """Return what to hide in a record of a job."""
        return self._replace(
            values=(*self.values, *hidden_values(spec)),
            hides_output=self.is_for_viewer and spec.hides_output,
        )


Cleaner = Callable[[Any, _Hiding], Any]
"""Returns the same object if it has nothing to hide."""


def hidden_values(spec: JobSpec) -> tuple[str, ...]:
    """Return the secrets in a job's variables and arguments, in each spelling that a text may use.

    A switch like ``true`` is none, nor is the name of a node, by which answers are put together.
    """
    nodes = {one.node for one in spec.participants}
    found = [
        value
        for name, value in spec.environment.items()
        if (name in spec.from_environment or is_secret(name, value)) and not is_switch(value)
    ]
    found += [*secret_words(spec.entry), *secret_words(spec.torchrun_arguments)]
    return tuple(
        dict.fromkeys(
            spelled for value in found if value not in nodes for spelled in _spellings(value)
        )
    )


def shown_spec(spec: JobSpec) -> JobSpec:
    """Return a spec without the values of secret variables and without secret arguments."""
    return msgspec.structs.replace(
        spec,
        entry=shown_words(spec.entry),
        torchrun_arguments=shown_words(spec.torchrun_arguments),
        environment=shown(spec.environment, spec.from_environment),
    )


def cleaned(
    content: T,
    values: Iterable[str] = (),
    *,
    is_for_viewer: bool = False,
    hides_output: bool = False,
) -> T:
    """Return a copy with all secrets masked: given ones, those of known forms, and in a job's
    record its own.

    Args:
        content: a record, or what is made of them and of JSON's types.
        is_for_viewer: a spec loses its files and all values of its variables, and problems of a
            session that hides its output lose their detail.
        hides_output: that content is of such a session. A job's record says so itself.

    Raises:
        TypeError: a record has a field of a type that is not known here.
    """
    found: T = _clean(content, _Hiding(tuple(values), is_for_viewer, hides_output))
    return found


def _spellings(value: str) -> Iterator[str]:
    """Yield a value as it is, as JSON, Python and URLs write it, and its lines."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    yield quote(value, safe="")
    if "\n" in value:
        lines = map(str.strip, value.splitlines())
        yield from (line for line in lines if len(line) >= SHORTEST_LINE)


def _clean(content: Any, hiding: _Hiding) -> Any:
    """Mask a value by its actual type, where none is declared."""
    match content:
        case str():
            return masked(content, hiding.values)
        case msgspec.Struct():
            return _clean_record(content, hiding)
        case Mapping():
            return {_clean(key, hiding): _clean(one, hiding) for key, one in content.items()}
        case tuple() | list():
            return _same(content, [_clean(one, hiding) for one in content])
        case bool() | int() | float() | bytes() | enum.Enum() | None:
            return content
        case _:
            raise TypeError(f"it is not known whether {type(content)} may hold a secret")


def _clean_record(record: msgspec.Struct, hiding: _Hiding) -> msgspec.Struct:
    spec = getattr(record, "spec", None)
    if isinstance(spec, JobSpec):
        hiding = hiding.of(spec)
    if isinstance(record, JobSpec):
        hiding = hiding.of(record)
        record = hiding.show(record)
    if isinstance(record, Problem) and hiding.hides_output and record.detail:
        record = msgspec.structs.replace(record, detail="")
    changed = {}
    for name, cleaner in _cleaners(type(record)):
        before = getattr(record, name)
        after = cleaner(before, hiding)
        if after is not before:
            changed[name] = after
    return msgspec.structs.replace(record, **changed) if changed else record


@cache
def _cleaners(kind: type[msgspec.Struct]) -> tuple[tuple[str, Cleaner], ...]:
    """Return a cleaner for each field of a record that may hold text."""
    hints = get_type_hints(kind, include_extras=True)
    made = ((name, _cleaner(hints[name])) for name in kind.__struct_fields__)
    return tuple((name, cleaner) for name, cleaner in made if cleaner is not None)


def _cleaner(hint: Any) -> Cleaner | None:
    """Return the cleaner for a type; ``None`` if it cannot hold text.

    Raises:
        TypeError: that is not known.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        return _clean_id if hint.__supertype__ is str else _cleaner(hint.__supertype__)
    if origin is Annotated:
        return _cleaner(arguments[0])
    if origin in (Union, UnionType):
        return _of_union(arguments)
    if origin in (tuple, list):
        return _of_items([one for one in arguments if one is not ...])
    if origin is dict:
        return _of_mapping(*map(_cleaner, arguments))
    if hint in (str, Any, object):
        return _clean
    if origin is Literal or hint in _WITHOUT_TEXT:
        return None
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _clean_record
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return None
    raise TypeError(f"it is not known whether {hint!r} may hold a secret")


def _clean_id(text: str, hiding: _Hiding) -> str:
    return text if _ID.fullmatch(text) else masked(text, hiding.values)


def _of_union(kinds: Sequence[Any]) -> Cleaner | None:
    """Return a cleaner for a union, which picks the member that fits the value."""
    made = [(get_origin(kind) or kind, _cleaner(kind)) for kind in kinds]
    known = [(origin, cleaner) for origin, cleaner in made if cleaner is not None]
    if not known:
        return None

    def clean(content: Any, hiding: _Hiding) -> Any:
        if isinstance(content, msgspec.Struct):
            return _clean_record(content, hiding)
        for origin, cleaner in known:
            kind = str if isinstance(origin, NewType) else origin
            if isinstance(kind, type) and isinstance(content, kind):
                return cleaner(content, hiding)
        return content

    return clean


def _of_items(kinds: Sequence[Any]) -> Cleaner | None:
    cleaners = [_cleaner(kind) or _unchanged for kind in kinds]
    if all(cleaner is _unchanged for cleaner in cleaners):
        return None

    def clean(content: Any, hiding: _Hiding) -> Any:
        each = cleaners if len(cleaners) > 1 else repeat(cleaners[0])
        return _same(content, [of(one, hiding) for of, one in zip(each, content, strict=False)])

    return clean


def _of_mapping(of_key: Cleaner | None, of_value: Cleaner | None) -> Cleaner | None:
    if of_key is None and of_value is None:
        return None
    key_cleaner, value_cleaner = of_key or _unchanged, of_value or _unchanged

    def clean(content: Any, hiding: _Hiding) -> Any:
        made = {
            key_cleaner(key, hiding): value_cleaner(one, hiding) for key, one in content.items()
        }
        return content if made == content else made

    return clean


def _same(before: Any, after: list[Any]) -> Any:
    """Return the cleaned items in a container of the same type; the same object if none changed."""
    if all(old is new for old, new in zip(before, after, strict=True)):
        return before
    return type(before)(after)


def _unchanged(content: Any, _: _Hiding) -> Any:
    return content
