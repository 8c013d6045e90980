"""Lost parts: refuses conversations of which the chat template would leave something out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from jupyter_mntrain.recipe.parts.data import ANSWERS
from jupyter_mntrain.train.data.bad_rows import RowError
from jupyter_mntrain.train.data.conversations import REASONING, Message, Tool

Render = Callable[[Sequence[Message], Sequence[Tool] | None], str]

_MARK = "mntrain "
_BY_CHANCE_CHARACTERS = 24
"""Shorter content may also be a part of something else."""


def refuse_lost(
    render: Render, text: str, messages: Sequence[Message], tools: Sequence[Tool] | None, where: str
) -> None:
    """Check that a conversation's tools, tool calls, reasoning and further roles are in its text.

    Of reasoning, that of some answer is enough: templates leave out that of earlier answers by
    design, as the model does not see it when it gives the next one.

    Args:
        text: the conversation as rendered.

    Raises:
        RowError: the text would be the same without them.
    """

    def is_lost(messages: Sequence[Message], tools: Sequence[Tool] | None) -> bool:
        try:
            return render(messages, tools) == text
        except RowError:
            return False

    if not text.strip():
        raise _lost("anything", where)
    if tools and is_lost(messages, None):
        raise _lost("tools", where)
    for what, others in _altered(messages, text):
        if is_lost(others, tools):
            raise _lost(what, where)


def _altered(messages: Sequence[Message], text: str) -> Iterator[tuple[str, Sequence[Message]]]:
    """Conversations of which the text must be another, and what it would lack otherwise."""
    if any(REASONING[0] in one for one in messages):
        yield "reasoning", [_without(one, *REASONING) for one in messages]
    for place, message in enumerate(messages):
        before, after = messages[:place], messages[place + 1 :]
        if "tool_calls" in message:
            yield "tool_calls", [*before, _without(message, "tool_calls"), *after]
        role, content = message["role"], message["content"].strip()
        if not content or role in {"user", ANSWERS}:
            continue
        if len(content) < _BY_CHANCE_CHARACTERS or content not in text:
            other = {**message, "content": _MARK + content}
            yield f"messages of role {role}", [*before, other, *after]


def _without(message: Message, *names: str) -> Message:
    return {name: value for name, value in message.items() if name not in names}


def _lost(what: str, where: str) -> RowError:
    return RowError(
        where,
        f"the chat template does not write {what}",
        fix="set data.chat_template to one that does, or remove them from the data",
    )
