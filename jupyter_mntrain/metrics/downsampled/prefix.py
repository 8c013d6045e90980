"""Prefix: a snapshot of a list that only ever grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

T = TypeVar("T")


class Prefix(Sequence[T]):
    """A snapshot of a list that only ever grows; copies nothing."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            begin, end, step = index.indices(self._length)
            if step == 1:
                return self._items[begin:end]
            return [self._items[i] for i in range(begin, end, step)]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, like a list

    def __repr__(self) -> str:
        return f"Prefix({list(self)!r})"
