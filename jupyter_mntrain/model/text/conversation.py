"""Conversation: messages between a driver and a chat job."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import TRAINER

CHATTER: Final = f"{TRAINER}.answering.talking"
"""Module that a chat job runs."""

MOST_NEW_TOKENS: Final = 1_000_000
LARGEST_SEED: Final = 2**32 - 1


class ChatMessage(Record, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Sampling(Record, frozen=True):
    """Options for sampling an answer.

    Args:
        tokens: most new tokens.
        temperature: 0 always picks the likeliest token.
    """

    tokens: Annotated[int, Meta(ge=1, le=MOST_NEW_TOKENS)] = 512
    temperature: Annotated[float, Meta(ge=0.0, le=10.0)] = 0.8
    top_p: Annotated[float, Meta(gt=0.0, le=1.0)] = 0.95
    seed: Annotated[int, Meta(ge=0, le=LARGEST_SEED)] = 0


class ChatRequest(Record, frozen=True):
    """Question to a chat job, which also keeps it alive. Idempotent by turn.

    Args:
        attempt: number of the attempt.
        turn: from 1; 0 asks nothing yet.
        messages: the whole conversation; of a completion, one text to continue.
        is_completion: continue the text as it is, without the chat template.
        received: characters of this turn's answer that the driver has.
        is_last: the driver leaves, and the job ends.
    """

    attempt: int
    turn: Annotated[int, Meta(ge=0)] = 0
    messages: Annotated[tuple[ChatMessage, ...], Meta(max_length=10_000)] = ()
    is_completion: bool = False
    sampling: Sampling = Sampling()
    received: Annotated[int, Meta(ge=0)] = 0
    is_last: bool = False


class ChatAnswer(Record, frozen=True):
    """State of a chat job's answer.

    Args:
        turn: that it belongs to; 0 = the model is loaded, and nothing has been asked.
        step: of the checkpoint; ``None`` for a directory.
        text: of the answer so far; in a reply, what the driver has not received.
        tokens: new ones so far.
        seconds: since the question was read.
        problem: why there is no answer, or no more of it.
    """

    turn: int = 0
    step: int | None = None
    has_template: bool = False
    text: str = ""
    tokens: int = 0
    seconds: float = 0.0
    is_over: bool = False
    problem: Problem | None = None


class ChatReply(Record, frozen=True):
    """Reply to a request; it has no answer while there is nothing new."""

    answer: ChatAnswer | None = None
