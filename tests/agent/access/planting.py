"""Planting: a record of any type with a secret of its own in every text that it may hold."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

T = TypeVar("T")


class Planter:
    """Makes records.

    Args:
        places: the field of each secret planted so far, by the secret.
    """

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def record(self, kind: type[T], **given: Any) -> T:
        """Args:
        given: fields that are not planted.
        """
        hints = get_type_hints(kind, include_extras=True)
        fields = kind.__struct_fields__  # type: ignore[attr-defined]
        made = {
            name: self._value(hints[name], f"{kind.__name__}.{name}")
            for name in fields
            if name not in given
        }
        return kind(**made, **given)

    def _secret(self, place: str) -> str:
        secret = f"no-known-form-{len(self.places):04d}"
        self.places[secret] = place
        return secret

    def _value(self, hint: Any, place: str) -> Any:
        if isinstance(hint, NewType):
            return self._value(hint.__supertype__, place)
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._value(arguments[0], place)
        if origin in (Union, UnionType):
            # A text if it may be one, else the first thing that it may be.
            kinds = [one for one in arguments if one is not NoneType]
            return self._value(str if str in kinds else kinds[0], place)
        if origin is not None:
            return self._of_parts(origin, arguments, place)
        if hint in (str, Any, object):
            return self._secret(place)
        if issubclass(hint, enum.Enum):
            return next(iter(hint))
        if issubclass(hint, msgspec.Struct):
            return self.record(hint)
        return {bool: False, int: 1, float: 1.0, bytes: b""}[hint]

    def _of_parts(self, origin: Any, arguments: tuple[Any, ...], place: str) -> Any:
        if origin is tuple:
            kinds = [one for one in arguments if one is not ...]
            return tuple(self._value(one, place) for one in kinds)
        if origin is list:
            return [self._value(arguments[0], place)]
        if origin is dict:
            key, value = arguments
            return {self._value(key, f"{place} (key)"): self._value(value, place)}
        assert origin is Literal, origin
        return arguments[0]


def records_in(hint: Any, known: set[type] | None = None) -> Iterator[type]:
    """Every record that may be in what has this type, itself included."""
    known = set() if known is None else known
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint in known:
            return
        known.add(hint)
        yield hint
        for one in get_type_hints(hint, include_extras=True).values():
            yield from records_in(one, known)
    for one in get_args(hint):
        yield from records_in(one, known)
