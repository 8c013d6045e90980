"""Dialog of ``chat``: turns, commands and what cannot be answered."""

from __future__ import annotations

from collections.abc import Iterator

from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.conversation import ChatAnswer, ChatMessage, Sampling
from jupyter_mntrain.verbs.launching.answering.dialog import Dialog
from tests.wording import says

PROBLEM = Problem(kind=Kind.BAD_RECIPE, cause="too long", fix="/clear")


class Model:
    """Repeats the last message, in two pieces; has no answer to "long"."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[ChatMessage, ...], Sampling]] = []

    def __call__(self, messages: tuple[ChatMessage, ...], how: Sampling) -> Iterator[ChatAnswer]:
        self.asked.append((messages, how))
        text = messages[-1].content
        yield ChatAnswer(text=text[:1])
        is_long = text == "long"
        yield ChatAnswer(text=text[1:], is_over=True, problem=PROBLEM if is_long else None)


def talk(*lines: str, is_completion: bool = False) -> tuple[Model, str]:
    model, written, typed = Model(), [], iter(lines)

    def read() -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    Dialog(model, read, written.append, is_completion=is_completion).run()
    return model, "".join(written)


def contents(model: Model) -> list[list[str]]:
    return [[f"{one.role}: {one.content}" for one in messages] for messages, _ in model.asked]


def test_a_turn_sees_those_before_until_they_are_forgotten() -> None:
    model, written = talk("Hi", " ", "You?", "/clear", "Hi", "/system Be kind.", "Hi")
    assert contents(model) == [
        ["user: Hi"],
        ["user: Hi", "assistant: Hi", "user: You?"],
        ["user: Hi"],
        ["system: Be kind.", "user: Hi"],
    ]
    assert written.startswith("Hi\nYou?\n")


def test_what_cannot_be_answered_is_said_and_not_remembered() -> None:
    model, written = talk("long", "\x1b[2J", "/quit", "never")
    assert contents(model) == [["user: long"], ["user: \x1b[2J"]]
    assert says("too long. Fix: /clear", written)
    assert "\x1b" not in written


def test_commands_change_how_an_answer_is_sampled() -> None:
    model, written = talk("/temperature 0", "/tokens 7", "/tokens no", "/temperature 11", "Hi")
    [(_, how)] = model.asked
    assert (how.temperature, how.tokens) == (0.0, 7)
    assert says("/tokens takes a whole number", written)
    assert says("/temperature takes a number", written)
    assert says("There is no /nothing. See /help.", talk("/nothing")[1])


def test_of_a_completion_each_line_stands_alone() -> None:
    model, _ = talk("Once", "Twice", is_completion=True)
    assert contents(model) == [["user: Once"], ["user: Twice"]]
