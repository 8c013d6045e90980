"""Dialog: the turns of a chat, at a terminal or in a notebook's input box."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from jupyter_mntrain.model.text.conversation import (
    MOST_NEW_TOKENS,
    ChatAnswer,
    ChatMessage,
    Sampling,
)
from jupyter_mntrain.model.text.foreign import visible
from jupyter_mntrain.show.problems import problem_text

HELP: Final = """\
/clear            forget the conversation
/system TEXT      begin again with this system message; without TEXT, with none
/tokens N         answer with at most N new tokens
/temperature T    0 always picks the likeliest token
/help             show this
/exit             end the chat, as do Ctrl-D and Ctrl-C
"""
LEAVING: Final = frozenset({"/exit", "/quit", "/bye"})

Asks = Callable[[tuple[ChatMessage, ...], Sampling], Iterable[ChatAnswer]]


@dataclass
class Dialog:
    """Several turns with a model.

    Args:
        ask: asks the model.
        read: reads a line; ``EOFError`` ends the dialog.
        write: shows a piece of text at once.
        is_completion: each line is continued by itself.
    """

    ask: Asks
    read: Callable[[], str]
    write: Callable[[str], object]
    sampling: Sampling = field(default_factory=Sampling)
    system: str = ""
    is_completion: bool = False
    said: list[ChatMessage] = field(default_factory=list)

    def run(self) -> None:
        """Run the dialog until the user leaves."""
        for line in self._lines():
            if line in LEAVING:
                return
            if line.startswith("/"):
                self._command(line)
            else:
                self._turn(line)

    def _lines(self) -> Iterator[str]:
        while True:
            try:
                line = self.read().strip()
            except EOFError:
                return
            if line:
                yield line

    def _command(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        match word, rest.strip():
            case "/help", _:
                self.write(HELP)
            case "/clear", _:
                self.said.clear()
                self.write("The conversation is forgotten.\n")
            case "/system", text:
                self.said.clear()
                self.system = text
                self.write("The conversation begins again.\n")
            case "/tokens", text:
                self._set("tokens", text, f"a whole number from 1 to {MOST_NEW_TOKENS:,}")
            case "/temperature", text:
                self._set("temperature", text, "a number from 0 to 10")
            case _:
                self.write(f"There is no {visible(word)}. See /help.\n")

    def _set(self, name: str, text: str, allowed: str) -> None:
        given = {**msgspec.structs.asdict(self.sampling), name: text}
        try:
            self.sampling = msgspec.convert(given, Sampling, strict=False)
        except msgspec.ValidationError:
            self.write(f"/{name} takes {allowed}.\n")

    def _turn(self, line: str) -> None:
        mine = ChatMessage(role="user", content=line)
        system = [ChatMessage(role="system", content=self.system)] if self.system else []
        messages = (mine,) if self.is_completion else (*system, *self.said, mine)
        text = ""
        for piece in self.ask(messages, self.sampling):
            text += piece.text
            self.write(visible(piece.text))
            if piece.problem is not None:
                self.write(f"{problem_text(piece.problem).plain}\n")
                return
        self.write("\n")
        self.said += [mine, ChatMessage(role="assistant", content=text)]
