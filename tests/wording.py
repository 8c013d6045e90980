"""Tests of wording: what they say of a sentence of ours is proved where it can be read.

The unit tests run with every sentence scrambled; those that read some run apart, as they are, and
scrambled as well in the long form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from inspect import isclass, isfunction, ismodule
from types import CodeType, FunctionType
from typing import Any

from tests.scrambling.scrambled_words import VARIABLE


def is_scrambled() -> bool:
    """Whether every sentence of ours is scrambled, in this process and those it starts."""
    return os.environ.get(VARIABLE) == "1"


def says(words: str, text: str) -> bool:
    """Whether a sentence of ours holds these words."""
    return _is_untold() or words in text


def wording(pattern: str) -> str:
    """For ``pytest.raises(match=…)``: a pattern of words of ours."""
    return "." if _is_untold() else pattern


def reads(pattern: str, text: str) -> bool:
    """Whether a sentence of ours reads like this."""
    return _is_untold() or re.search(pattern, text) is not None


HELPERS = (says, wording, reads)

known: dict[str, bool] = {}
"""Of each test of this process: whether it is known to read words of ours."""


def _is_untold() -> bool:
    """Whether nothing can be said of a sentence, which the test then says in its other run."""
    if not is_scrambled():
        return False
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if not known.get(test, True):
        raise AssertionError(
            f"{test} reads words of ours, and nobody sees that in its code, so that it would not "
            "run with sentences as they are. Fix: call says, wording or reads in its module."
        )
    return True


def reads_words(*functions: Callable[..., Any]) -> bool:
    """Whether one of them, or of the tests' functions that they call, asks for words of ours."""
    seen: set[int] = set()
    return any(_reads(one, seen) for one in functions)


def _reads(function: Any, seen: set[int]) -> bool:
    function = getattr(function, "__func__", function)
    function = getattr(function, "__wrapped__", function)
    if function in HELPERS:
        return True
    if id(function) in seen or not str(getattr(function, "__module__", "")).startswith("tests"):
        return False
    seen.add(id(function))
    if isclass(function):
        return any(_reads(one, seen) for one in vars(function).values() if isfunction(one))
    return isfunction(function) and any(_reads(one, seen) for one in _called(function))


def _called(function: FunctionType) -> Iterator[Any]:
    """What a function names, of its module and of those of the tests that this one imports."""
    names = set(_names(function.__code__))
    for one in (function.__globals__.get(name) for name in names):
        yield one
        if ismodule(one) and one.__name__.startswith("tests"):
            yield from (getattr(one, name, None) for name in names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)
