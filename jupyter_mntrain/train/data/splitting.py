"""Splitting: makes several conversations of one that is longer than a sequence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from jupyter_mntrain.recipe.parts.data import ANSWERS
from jupyter_mntrain.train.data.conversations import Message

_FIRST = frozenset({"system", "developer"})


def split_turns(
    messages: Sequence[Message], fits: Callable[[Sequence[Message]], bool]
) -> list[Sequence[Message]]:
    """Split before questions, into as few conversations as fit, each with the system's messages.

    A question stays with its answers, even if they do not fit together. What has no answer is left
    out.
    """
    system = list(takewhile(lambda one: one["role"] in _FIRST, messages))
    found: list[Sequence[Message]] = []
    current = system
    for exchange in _exchanges(messages[len(system) :]):
        if len(current) > len(system) and not fits([*current, *exchange]):
            found.append(current)
            current = system
        current = [*current, *exchange]
    found.append(current)
    return [one for one in found if _has_answer(one)]


def _exchanges(messages: Sequence[Message]) -> list[list[Message]]:
    """Questions, each with all that follows up to the next question."""
    exchanges: list[list[Message]] = []
    for message in messages:
        if not exchanges or (message["role"] == "user" and _has_answer(exchanges[-1])):
            exchanges.append([])
        exchanges[-1].append(message)
    return exchanges


def _has_answer(messages: Sequence[Message]) -> bool:
    return any(message["role"] == ANSWERS for message in messages)
