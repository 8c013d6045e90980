"""Chat data: renders conversations with the chat template and marks the answers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from jinja2 import TemplateSyntaxError, UndefinedError
from transformers import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from jupyter_mntrain.families.directories import TOKENIZER_CONFIG, unreadable
from jupyter_mntrain.model.errors import RecipeError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.recipe.sections import ANSWERS, DataSection
from jupyter_mntrain.train.data.conversations import WEIGHT, Message, Tool, refuse_lost
from jupyter_mntrain.train.data.records import RowError
from jupyter_mntrain.train.data.special_tokens import SpecialTokens, special_tokens

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

DAY: Final = datetime(2024, 7, 26, tzinfo=UTC)
"""Written in training by templates that write today's date: a run is the same on all nodes, after
a restart and next week. Llama's templates fall back to this one where nothing tells the day.
"""
TODAY: Final = "strftime_now"
"""The function that templates call for the date, provided by transformers."""
_TODAY: Final = re.compile(rf"""{TODAY}\(\s*(["'])(.*?)\1\s*\)""")

_PLACE = "mntrain-answer"
"""Placeholder for an answer, to find its place."""

_QUESTION: Message = {"role": "user", "content": "?"}

TURN_BEGINS, TURN_ENDS = "<|im_start|>", "<|im_end|>"
CHATML_OF_TOKENS = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""For models without a template whose tokenizer has both markers: one ends an answer, too."""


class RenderedChat(NamedTuple):
    """A document as text.

    Args:
        answers: begin and end of each answer, in characters; ``None`` if all of it counts.
        special: a special token that people wrote in it, which is to be text: then the template's
            have other names, which :meth:`SpecialTokens.tokenizer_for` knows.
    """

    text: str
    answers: tuple[tuple[int, int], ...] | None = None
    special: str | None = None


class ChatWriter:
    """Renders conversations with a chat template.

    Args:
        tokenizer: supplies the special tokens.
        template: overrides the tokenizer's own; without either, ChatML is used.
        splits_special: read special tokens in messages as text.
        day: that the template writes as today's; ``None`` = today.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        template: str | None,
        *,
        answers_only: bool,
        splits_special: bool = True,
        day: datetime | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self.template = template or tokenizer.chat_template or _chatml(tokenizer)
        self._day = day
        self._marks = answers_only
        self._splits = splits_special

    @cached_property
    def dated(self) -> str:
        """The template with its date filled in.

        Raises:
            RecipeError: it asks for the day in a way that is not known.
        """
        if (day := self._day) is None:
            return self.template
        dated = _TODAY.sub(lambda found: json.dumps(day.strftime(found[2])), self.template)
        if f"{TODAY}(" in dated:
            cause = f"the chat template calls {TODAY} with something other than text in quotes"
            fix = "write the format there, or set another data.chat_template"
            raise RecipeError(cause, fix=fix)
        return dated

    def write(
        self, messages: Sequence[Message], where: str, tools: Sequence[Tool] | None = None
    ) -> RenderedChat:
        """Render a conversation.

        Args:
            tools: that the assistant may call.

        Raises:
            RowError: the template rejects it, or leaves a part of it out.
        """
        (messages, tools), special = self.special.hidden((messages, tools))
        known = [self._known(message) for message in messages]
        chat = _Chat(self, known, tools, where)
        text = chat.rendered(len(known))
        refuse_lost(
            lambda some, with_tools: self.render(some, where, with_tools), text, known, tools, where
        )
        answers = chat.answers(text) if self._marks else None
        return self._shown(RenderedChat(text, answers, special), where)

    def asks(self, messages: Sequence[Message], where: str) -> list[int]:
        """Return the token ids of a conversation, up to where the next answer begins.

        Raises:
            RowError: the template rejects it.
        """
        messages, special = self.special.hidden(messages)
        text = self.render(messages, where, asks=True)
        written = self._shown(RenderedChat(text, None, special), where)
        return self.special.ids(written.text, special)

    def render(
        self,
        messages: Sequence[Message],
        where: str,
        tools: Sequence[Tool] | None = None,
        *,
        asks: bool = False,
    ) -> str:
        """Run the template.

        Args:
            asks: write also how an answer begins.

        Raises:
            RowError: it fails.
        """
        try:
            written = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if tools is None else [dict(tool) for tool in tools],
                chat_template=self.dated,
                tokenize=False,
                add_generation_prompt=asks,
            )
        except Exception as error:
            # A template is other people's code and may raise anything.
            what, why = "the chat template rejects it", f": {error}"
            fix = "fix that conversation, or set another data.chat_template"
            if isinstance(error, UndefinedError) and (lacking := self._lacking_token):
                what, why = f"the chat template writes {lacking}, which the tokenizer lacks", ""
                fix = f"set {lacking} in {TOKENIZER_CONFIG}, or another data.chat_template"
            raise RowError(where, what, detail=why, fix=fix) from error
        return str(written)

    @property
    def _lacking_token(self) -> str | None:
        """Return a special token that the template uses and the tokenizer lacks, if any."""
        names = self._tokenizer.SPECIAL_TOKENS_ATTRIBUTES
        lacking = (one for one in names if one not in self._tokenizer.special_tokens_map)
        return next((one for one in lacking if one in self.template), None)

    @cached_property
    def opening(self) -> str:
        """What the template writes before each answer.

        Raises:
            RowError: it rejects a question.
        """
        closed = self.render([_QUESTION], "a question")
        return self.render([_QUESTION], "a question", asks=True).removeprefix(closed)

    def end_of_turn(self, text: str) -> int:
        """Return where a text's last turn ends; white space after its marker is the template's."""
        said = text.rstrip()
        return len(said) if said.endswith(self._ends) else len(text)

    @cached_property
    def end_of_answer(self) -> str | None:
        """The token that the template writes after an answer; ``None`` if there is none."""
        after = self._closing.lstrip()
        return max((one for one in self._markers if after.startswith(one)), key=len, default=None)

    def end_before(self, text: str) -> str:
        """Return the end-of-turn marker that a text begins with; empty if there is none."""
        return max((one for one in self._ends if text.startswith(one)), key=len, default="")

    @cached_property
    def _closing(self) -> str:
        """What the template writes after an answer; empty if it rejects the test conversation."""
        said = [_QUESTION, {"role": ANSWERS, "content": "Yes"}]
        try:
            return self.render(said, "an answer").rpartition("Yes")[2]
        except RowError:
            return ""

    @cached_property
    def _ends(self) -> tuple[str, ...]:
        """The markers that end a turn: tokens, or text that models without such a token learn."""
        closing = self._closing.rstrip()
        return (*self._markers, closing) if closing else self._markers

    @cached_property
    def _markers(self) -> tuple[str, ...]:
        """The special tokens, which no text is split into."""
        return tuple(special_tokens(self._tokenizer))

    @cached_property
    def special(self) -> SpecialTokens:
        """The tokenizer's special tokens, and others that its template uses (DeepSeek's)."""
        return SpecialTokens(self._tokenizer, self._turn_markers(), splits=self._splits)

    def _turn_markers(self) -> list[str]:
        # Without the last answer, to which many add an empty thought, which people write, too.
        said = [_QUESTION, {"role": ANSWERS, "content": "Yes"}, _QUESTION]
        try:
            text = self.render(said, "a question")
        except RowError:
            return []
        added = (one.content for one in self._tokenizer.added_tokens_decoder.values())
        return [
            one
            for one in added
            if one in text and not (len(one) == 1 or one.isalnum() or one.isspace())
        ]

    def _shown(self, written: RenderedChat, where: str) -> RenderedChat:
        """Put the special tokens that people wrote back into the text.

        Raises:
            RowError: the template has made something else of them.
        """
        if written.special is None:
            return written
        try:
            text, answers = self.special.shown(written.text, written.answers or ())
        except ValueError as error:
            what, why = "the chat template rejects a special token", f" {written.special}: {error}"
            fix = "remove it from that conversation, or set data.split_special_tokens = false"
            raise RowError(where, what, detail=why, fix=fix) from None
        return RenderedChat(text, written.answers and answers, written.special)

    def _known(self, message: Message) -> Message:
        """Return the message in a role that the template knows: ``developer`` can be ``system``."""
        if message["role"] == "developer" and "developer" not in self.template:
            return {**message, "role": "system"}
        return message


class _Chat(NamedTuple):
    """A conversation and how to render it."""

    writer: ChatWriter
    messages: Sequence[Message]
    tools: Sequence[Tool] | None
    where: str

    def rendered(self, count: int, *, asks: bool = False) -> str:
        """Render the first ``count`` messages."""
        return self.writer.render(self.messages[:count], self.where, self.tools, asks=asks)

    def otherwise(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> str:
        """Render other messages and tools the same way."""
        return self.writer.render(messages, self.where, tools)

    def answers(self, text: str) -> tuple[tuple[int, int], ...]:
        """Return begin and end of each answer in the conversation's text."""
        spans = []
        for place, message in enumerate(self.messages):
            if message["role"] != ANSWERS or message.get(WEIGHT) == 0:
                continue
            is_last = place + 1 == len(self.messages)
            upto = text if is_last else self.rendered(place + 1)
            begin = self._begin(place, upto) if text.startswith(upto) else None
            if begin is not None:
                spans.append((begin, self.writer.end_of_turn(upto)))
            elif (span := self._marked(place, text)) is not None:
                spans.append(span)
            else:
                raise RowError(
                    self.where,
                    "the chat template rewrites earlier turns, so the answer cannot be located",
                    fix="set data.answers_only = false, or another data.chat_template",
                )
        if not spans:
            fix = "remove that conversation, or give one of its answers weight 1"
            raise RowError(self.where, "all of its answers have weight 0", fix=fix)
        return tuple(spans)

    def _marked(self, place: int, text: str) -> tuple[int, int] | None:
        """Return begin and end of an answer that is rendered differently when it is not the last.

        Qwen 3's template, for example, drops the reasoning of earlier answers. ``None`` if it
        cannot be found.
        """
        marked = [*self.messages]
        # Without its calls and thoughts, which stand at its place, too.
        marked[place] = {"role": ANSWERS, "content": _PLACE}
        try:
            before, mark, after = self.otherwise(marked, self.tools).partition(_PLACE)
        except RowError:
            return None
        opening, end = self.writer.opening, len(text) - len(after)
        is_same = text.startswith(before) and text.endswith(after) and end >= len(before)
        if not (mark and opening and opening in before and is_same):
            return None
        return before.rfind(opening) + len(opening), end + len(self.writer.end_before(after))

    def _begin(self, place: int, upto: str) -> int | None:
        """Return where an answer begins; ``None`` if the template does not tell."""
        is_first = not any(message["role"] == "user" for message in self.messages[:place])
        try:
            before = self.rendered(place, asks=True) if place else None
        except RowError:
            if not is_first:
                raise
            before = None  # many templates reject a system message alone
        if before is not None and upto.startswith(before):
            return len(before)
        if not is_first or not self.writer.opening:
            return None
        # Nobody has asked anything, and no template writes a conversation without messages.
        after = 0
        for message in self.messages[:place]:
            content = message["content"].strip()
            after = max(after, upto.find(content, after) + len(content))
        found = upto.find(self.writer.opening, after)
        return None if found < 0 else found + len(self.writer.opening)


def _chatml(tokenizer: PreTrainedTokenizerBase) -> str:
    has_markers = {TURN_BEGINS, TURN_ENDS} <= tokenizer.get_added_vocab().keys()
    return CHATML_OF_TOKENS if has_markers else CHATML


def template_of(section: DataSection) -> str | None:
    """Read the template file that the recipe names, if any.

    Raises:
        RecipeError: it cannot be read.
    """
    if section.chat_template is None:
        return None
    place = f"data.chat_template = {section.chat_template}"
    return read_template(in_home(section.chat_template), place)


def read_template(file: Path, place: object = None) -> str:
    """Read a chat template from a file.

    Args:
        place: what names it, for the message; by default its folder.

    Raises:
        RecipeError: it cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fix = "give a .jinja file that every node has"
        raise unreadable(file, error, place, fix=fix) from None
    refuse_broken(text, file, place)
    return text


def refuse_broken(template: str, file: Path, place: object = None) -> None:
    """Raise an error once if a file's chat template is broken, not for each of thousands of rows.

    Raises:
        RecipeError: it is empty, or cut short.
    """
    if not template.strip() or "\0" in template:
        why = "its chat template is empty, or has zeros in it"
        raise unreadable(file, why, place)
    try:
        render_jinja_template(conversations=[[]], chat_template=template)
    except TemplateSyntaxError as error:
        why = f"line {error.lineno} of its chat template: {error.message}"
        raise unreadable(file, why, place) from None
    except Exception:  # noqa: BLE001 - other people's code, which may want messages
        return
