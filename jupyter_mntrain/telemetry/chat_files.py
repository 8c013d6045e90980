"""Chat files: the question to a chat job and its answer, in the attempt's metrics directory.

The agent writes the question each time that it hears from the driver, so the file's time says when
that was. The job writes the answer, piece by piece.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.model.files import private_directory, write_atomically
from jupyter_mntrain.model.text.conversation import ChatAnswer, ChatRequest

QUESTION_FILE, ANSWER_FILE = "chat-question.json", "chat-answer.json"


def is_news(directory: Path, request: ChatRequest) -> bool:
    """Whether a request has a new question or ends the chat, and is not just a sign of life."""
    known = read_question(directory)
    if known is None:
        return True
    return not known.is_last and (request.turn > known.turn or request.is_last)


def put_question(directory: Path, request: ChatRequest) -> None:
    """Write a question.

    Raises:
        OSError: the disk is full.
    """
    private_directory(directory)  # the ranks may not have begun yet
    write_atomically(directory / QUESTION_FILE, msgspec.json.encode(request), is_durable=False)


def note_driver(directory: Path) -> None:
    """Note that the driver is still there."""
    with suppress(FileNotFoundError):  # the job has just ended
        os.utime(directory / QUESTION_FILE)


def read_question(directory: Path) -> ChatRequest | None:
    try:
        return msgspec.json.decode((directory / QUESTION_FILE).read_bytes(), type=ChatRequest)
    except (OSError, msgspec.MsgspecError):
        return None


def put_answer(directory: Path, answer: ChatAnswer) -> None:
    """Write the answer so far.

    Raises:
        OSError: the disk is full.
    """
    write_atomically(directory / ANSWER_FILE, msgspec.json.encode(answer), is_durable=False)


def read_answer(directory: Path) -> ChatAnswer | None:
    """Read the answer so far; ``None`` while the model is loading."""
    try:
        return msgspec.json.decode((directory / ANSWER_FILE).read_bytes(), type=ChatAnswer)
    except (OSError, msgspec.MsgspecError):
        return None


def end_conversation(directory: Path, attempt: int) -> None:
    """Delete question and answer, since chats are not kept.

    A last question stays, without words: one that comes late is not written any more.
    """
    put_question(directory, ChatRequest(attempt=attempt, is_last=True))
    (directory / ANSWER_FILE).unlink(missing_ok=True)


class QuestionReader:
    """Reads the question when the file has changed.

    Args:
        directory: the attempt's metrics directory.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / QUESTION_FILE
        self._seen: tuple[int, int] | None = None
        self.newest: ChatRequest | None = None

    def look(self) -> bool:
        """Read the newest question; return whether there was a sign of life since the last call."""
        try:
            status = self._path.stat()
        except OSError:
            return False
        now = (status.st_ino, status.st_mtime_ns)  # two may come within one tick of the disk
        if now == self._seen:
            return False
        self._seen = now
        self.newest = read_question(self._path.parent) or self.newest
        return True
