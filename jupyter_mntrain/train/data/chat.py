"""Chat data: finds conversations in rows, renders the chat template, marks answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.recipe.parts.data import DataSection

Message = Mapping[str, str]
"""``role`` and ``content``, as chat templates take them."""

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' and eos_token %}{{ eos_token }}"
    "{% else %}{{ '<|im_end|>' }}{% endif %}{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""For models without a template. An answer ends with the model's own end of text, so that servers
know when to stop and users never see a marker that is not a token.
"""

_ROLES = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "human": "user",
    "gpt": "assistant",
    "bing": "assistant",
    "model": "assistant",
}
"""Role names of ShareGPT and others, and the template's."""

ANSWERS = "assistant"


class RenderedChat(NamedTuple):
    """A document as text.

    Args:
        answers: begin and end of each answer, in characters; ``None`` if all of it counts.
    """

    text: str
    answers: tuple[tuple[int, int], ...] | None = None


def messages_of(fields: Mapping[str, Any], where: str) -> list[Message]:
    """Read a row's conversation: ``messages``, ``conversations``, or a prompt and its completion.

    Raises:
        RecipeError: it has no conversation, or one without an answer.
    """
    found = _turns(fields, where)
    messages: list[Message] = []
    for turn in found:
        role = turn.get("role", turn.get("from")) if isinstance(turn, dict) else None
        content = turn.get("content", turn.get("value")) if isinstance(turn, dict) else None
        if role not in _ROLES or not isinstance(content, str):
            cause = f"{where}: no role and content in {str(turn)[:80]}"
            raise RecipeError(cause, fix=f"roles are {', '.join(_ROLES)}; content is text")
        messages.append({"role": _ROLES[role], "content": content})
    if not any(message["role"] == ANSWERS for message in messages):
        raise RecipeError(f"{where} has no assistant turn", fix="remove that conversation")
    return messages


def _turns(fields: Mapping[str, Any], where: str) -> Sequence[Any]:
    for name in ("messages", "conversations", "conversation"):
        if isinstance(fields.get(name), list):
            turns: list[Any] = fields[name]
            return turns
    for asks, answer in (("prompt", "completion"), ("instruction", "output")):
        if isinstance(fields.get(asks), str) and isinstance(fields.get(answer), str):
            more = fields.get("input") or ""
            question = f"{fields[asks]}\n\n{more}" if more else fields[asks]
            said = [{"role": "user", "content": question}]
            return [*said, {"role": "assistant", "content": fields[answer]}]
    known = ", ".join(fields) or "no fields"
    raise RecipeError(
        f"{where}: not a conversation; its fields are {known}",
        fix="give messages (role, content), conversations (from, value), or prompt and completion",
    )


class ChatWriter:
    """Renders conversations with a chat template.

    Args:
        tokenizer: supplies the special tokens.
        template: overrides the tokenizer's own; without either, ChatML is used.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, template: str | None, *, answers_only: bool
    ) -> None:
        self._tokenizer = tokenizer
        self.template = template or tokenizer.chat_template or CHATML
        self._marks = answers_only

    def write(self, messages: Sequence[Message], where: str) -> RenderedChat:
        """Render a conversation.

        Raises:
            RecipeError: the template rejects it.
        """
        text = self._rendered(messages, where)
        return RenderedChat(text, self._answers(messages, text, where) if self._marks else None)

    def asks(self, prompt: str, where: str) -> str:
        """Render a user's first message, up to where the answer begins.

        Raises:
            RecipeError: the template rejects it.
        """
        return self._rendered([{"role": "user", "content": prompt}], where, asks=True)

    def _answers(
        self, messages: Sequence[Message], text: str, where: str
    ) -> tuple[tuple[int, int], ...]:
        spans = []
        for place, message in enumerate(messages):
            if message["role"] != ANSWERS:
                continue
            before = self._rendered(messages[:place], where, asks=True)
            upto = self._rendered(messages[: place + 1], where)
            if not (upto.startswith(before) and text.startswith(upto)):
                raise RecipeError(
                    f"{where}: the chat template rewrites earlier turns, so the answer cannot be "
                    "located",
                    fix="set data.answers_only = false, or another data.chat_template",
                )
            spans.append((len(before), len(upto)))
        return tuple(spans)

    def _rendered(self, messages: Sequence[Message], where: str, *, asks: bool = False) -> str:
        try:
            written = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=asks,
            )
        except Exception as error:
            # A template is other people's code and may raise anything.
            cause = f"{where}: the chat template rejects it: {error}"
            fix = "fix that conversation, or set another data.chat_template"
            raise RecipeError(cause, fix=fix) from error
        return str(written)


def template_of(section: DataSection) -> str | None:
    """Read the template file that the recipe names, if any.

    Raises:
        RecipeError: it cannot be read.
    """
    if section.chat_template is None:
        return None
    path = Path(section.chat_template).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cause = f"data.chat_template = {section.chat_template}: {error}"
        raise RecipeError(cause, fix="give a .jinja file that every node has") from None
