"""Chat in memory: a model that always says the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from jupyter_mntrain.model.text.conversation import ChatAnswer


class StandInChat:
    """Args:
    says: every answer.
    """

    def __init__(self, says: str) -> None:
        self._says = says

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ready(self) -> ChatAnswer:
        return ChatAnswer(step=3, has_template=True)

    def answers(self, *_: Any, **__: Any) -> Iterator[ChatAnswer]:
        yield ChatAnswer(turn=1, text=self._says, is_over=True)
