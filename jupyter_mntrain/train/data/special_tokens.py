"""Special tokens: control tokens where a template writes them, but plain text where people do."""

from __future__ import annotations

import json
import re
import secrets
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

Spans = tuple[tuple[int, int], ...]


class SpecialTokens:
    """A tokenizer's special tokens, kept apart from the same characters in people's text.

    Before a template runs, those in messages are replaced by stand-ins. What it writes is then
    encoded by a tokenizer that knows its special tokens by other names, so that people's are text
    like any other, wherever they are. Stand-ins and names are drawn at random: nobody can write
    them.

    Args:
        more: further tokens that only a template writes.
        splits: whether those that people wrote are text; else they are control tokens, too.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, more: Collection[str] = (), *, splits: bool
    ) -> None:
        self._tokenizer = tokenizer
        self.contents = frozenset({*special_tokens(tokenizer), *more})
        # Only the library tokenizers' can be made again: the few others keep what people wrote.
        self._sought = re.compile(_any_of(self.contents if splits and tokenizer.is_fast else ()))
        drawn = secrets.token_hex(8)
        self._stand_in, self._name = f"{drawn}p", f"{drawn}t"
        self._written = re.compile(f"{self._stand_in}([0-9a-f]+)z|{_any_of(self.contents)}")

    @cached_property
    def whole(self) -> Tokenizer:
        """The tokenizer that encodes each special token as one, no matter who wrote it."""
        return _bare(self._tokenizer.backend_tokenizer.to_str())

    @cached_property
    def splitting(self) -> Tokenizer:
        """The tokenizer that encodes special tokens as text, but their other names as special."""
        given = json.loads(self._tokenizer.backend_tokenizer.to_str())
        for one in given["added_tokens"]:
            one["content"] = self._renamed(one["content"])
        # Their own rows, too: a model of whole words or pieces would find them in text.
        model = given["model"]
        if isinstance(model.get("unk_token"), str):
            model["unk_token"] = self._renamed(model["unk_token"])
        if isinstance(model["vocab"], dict):
            model["vocab"] = {self._renamed(one): token for one, token in model["vocab"].items()}
        else:
            model["vocab"] = [[self._renamed(one), score] for one, score in model["vocab"]]
        if "merges" in model:
            model["merges"] = [
                pair for pair in model["merges"] if self.contents.isdisjoint((*pair, "".join(pair)))
            ]
        return _bare(json.dumps(given))

    def tokenizer_for(self, special: str | None) -> Tokenizer:
        """Return the tokenizer for a text.

        Args:
            special: a special token that people wrote in it.
        """
        return self.whole if special is None else self.splitting

    def ids(self, text: str, special: str | None) -> list[int]:
        """Return the token ids of a text in which people wrote ``special``."""
        if special is None:
            whole: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
            return whole
        split: list[int] = self.splitting.encode(text, add_special_tokens=False).ids
        return split

    def found_in(self, text: str) -> str | None:
        """Return a special token that people wrote and that is to be text, if there is one."""
        found = self._sought.search(text)
        return found[0] if found else None

    def hidden(self, said: Any) -> tuple[Any, str | None]:
        """Replace special tokens in messages and tools by stand-ins; return one of them, too."""
        found = next((one for text in _texts(said) if (one := self.found_in(text))), None)
        return (said, None) if found is None else (self._hidden(said), found)

    def shown(self, text: str, spans: Spans = ()) -> tuple[str, Spans]:
        """Turn a text that was rendered with stand-ins into what :attr:`splitting` encodes.

        That has the template's special tokens by their other names, and people's as they wrote
        them.

        Args:
            spans: begins and ends of places in the text; returned as those in the new one.

        Raises:
            ValueError: the template has taken a stand-in apart.
        """
        parts, before, size = list[str](), 0, 0
        places = sorted({place for span in spans for place in span}, reverse=True)
        moved: dict[int, int] = {}
        for found in self._written.finditer(text):
            while places and places[-1] <= found.start():
                place = places.pop()
                moved[place] = size + place - before
            hidden = found[1]
            parts += [
                text[before : found.start()],
                self._renamed(found[0]) if hidden is None else bytes.fromhex(hidden).decode(),
            ]
            before, size = found.end(), size + len(parts[-2]) + len(parts[-1])
        parts.append(text[before:])
        moved |= {place: size + place - before for place in places}
        if any(self._stand_in in part for part in parts):
            raise ValueError("it takes a special token apart")
        return "".join(parts), tuple((moved[begin], moved[end]) for begin, end in spans)

    def _hidden(self, said: Any) -> Any:
        if isinstance(said, str):
            return self._sought.sub(
                lambda found: f"{self._stand_in}{found[0].encode().hex()}z", said
            )
        if isinstance(said, Mapping):
            return {self._hidden(name): self._hidden(one) for name, one in said.items()}
        return [self._hidden(one) for one in said] if isinstance(said, (list, tuple)) else said

    def _renamed(self, one: str) -> str:
        return f"{self._name}{one.encode().hex()}z" if one in self.contents else one


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """Return the tokens that a tokenizer calls special, except single characters like "!"."""
    added = (one.content for one in tokenizer.added_tokens_decoder.values() if one.special)
    return {one for one in (*added, *tokenizer.all_special_tokens) if len(one.strip()) > 1}


def marking_tokens(tokenizer: PreTrainedTokenizerBase) -> set[str]:
    """Return special tokens and other added markers like ``<think>``, but no words."""
    added = (one.content for one in tokenizer.added_tokens_decoder.values())
    others = {one for one in added if len(one.strip()) > 1 and not one.strip().isalnum()}
    return special_tokens(tokenizer) | others


def _any_of(contents: Collection[str]) -> str:
    """Return a pattern that finds the longest match; grouped by first characters to be fast."""
    groups = defaultdict[str, list[str]](list)
    for one in sorted(contents, key=lambda one: (-len(one), one)):
        groups[one[:2]].append(re.escape(one[2:]))
    return (
        "|".join(f"{re.escape(begin)}(?:{'|'.join(ends)})" for begin, ends in groups.items())
        or r"(?!)"
    )


def _texts(said: Any) -> Iterator[str]:
    """Yield all strings in messages or tools."""
    if isinstance(said, str):
        yield said
    elif isinstance(said, Mapping):
        for name, one in said.items():
            yield from _texts(name)
            yield from _texts(one)
    elif isinstance(said, (list, tuple)):
        for one in said:
            yield from _texts(one)


def _bare(given: str) -> Tokenizer:
    """Make a tokenizer that neither pads nor truncates, which would silently change the text."""
    tokenizer: Tokenizer = Tokenizer.from_str(given)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
