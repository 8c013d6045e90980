"""Chat: ``python -m …train.answering.talking`` answers questions until its driver leaves.

Runs next to the job whose checkpoint it loads, or on a Hugging Face directory. Ranks that hold
shards send them to rank 0, which stays: it ends when the driver says so, or is silent for long.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import StoppingCriteria, StoppingCriteriaList, TextStreamer

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.errors import MntrainError, RecipeError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.text.conversation import CHATTER, ChatAnswer, ChatRequest
from jupyter_mntrain.telemetry.chat_files import QuestionReader, end_conversation, put_answer
from jupyter_mntrain.telemetry.problem_file import leave_with
from jupyter_mntrain.telemetry.progress import ProgressWriter
from jupyter_mntrain.telemetry.recorder import Recorder
from jupyter_mntrain.train.answering.generate import sampling
from jupyter_mntrain.train.answering.loaded import (
    Answering,
    add_source_arguments,
    leave_when_told,
    load_source,
)

LOOK_EVERY_S = 0.05
"""Interval at which a chat job looks for a question."""
WRITE_EVERY_S = 0.1
"""Interval at which it writes an answer that grows: fast enough to read along."""
SILENT_S = 30.0
"""A chat job ends if its driver is silent for this long: a kernel that restarts does not say so."""
PROGRESS_EVERY_S = 20.0
"""Interval at which a job that waits for questions says so: before a rank without a step is looked
at."""


@record
def main(argv: list[str] | None = None) -> None:
    """Load the model, and answer on rank 0."""
    arguments = _parser().parse_args(argv)
    with Recorder() as recorder:
        loaded = load_source(arguments, recorder.progress)
        if loaded is not None:
            leave_when_told()
            directory = Path(os.environ[METRICS_VARIABLE])
            Chatter(loaded, directory, recorder.progress).run()


@dataclass
class Chatter:
    """Answers the questions of one driver.

    Args:
        directory: of questions and answers.
        progress: is told now and then that the job waits, which is no stall.
        stopwatch: seconds from an arbitrary start.
    """

    loaded: Answering
    directory: Path
    progress: ProgressWriter
    stopwatch: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self._questions = QuestionReader(self.directory)
        self._heard_s = self._told_s = self.stopwatch()
        self._turn = self._attempt = 0

    def run(self) -> None:
        """Answer until the driver leaves."""
        try:
            self._put(ChatAnswer())
            while not self.is_left:
                question = self._questions.newest
                if question is not None and question.turn > self._turn:
                    self._turn, self._attempt = question.turn, question.attempt
                    self._answer(question)
                self.sleep(LOOK_EVERY_S)
        finally:
            end_conversation(self.directory, self._attempt)

    @property
    def is_left(self) -> bool:
        """Whether the driver has left, or was silent for so long that it must have."""
        now_s = self.stopwatch()
        if self._questions.look():
            self._heard_s = now_s
        if now_s - self._told_s > PROGRESS_EVERY_S:
            self._told_s = now_s
            self.progress("answering", self._turn, None, "turns")
        question = self._questions.newest
        return (question is not None and question.is_last) or now_s - self._heard_s > SILENT_S

    def _answer(self, question: ChatRequest) -> None:
        try:
            given = self.loaded.tokens_of(question)
        except MntrainError as error:
            self._put(ChatAnswer(turn=question.turn, is_over=True, problem=error.problem))
            return
        writer = _AnswerWriter(self, question.turn)
        problem = None
        try:
            self._generate(given, question, writer)
        except (torch.OutOfMemoryError, MemoryError) as error:
            cause = f"memory ran out during this answer: {next(iter(str(error).splitlines()), '')}"
            problem = RecipeError(cause, fix="start again: /clear, or choose fewer /tokens").problem
        writer.write(is_over=True, problem=problem)

    def _generate(self, given: torch.Tensor, question: ChatRequest, writer: _AnswerWriter) -> None:
        wishes, model = question.sampling, self.loaded.model
        torch.manual_seed(wishes.seed + question.turn - 1)
        with torch.no_grad():
            model.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=self.loaded.fitting(wishes.tokens, given),
                **sampling(wishes.temperature, wishes.top_p),
                eos_token_id=self.loaded.ends or None,
                pad_token_id=self.loaded.padding,
                streamer=writer,
                stopping_criteria=StoppingCriteriaList([_DriverLeft(self)]),
            )

    def _put(self, answer: ChatAnswer) -> None:
        put_answer(self.directory, self.loaded.described(answer))


class _DriverLeft(StoppingCriteria):  # type: ignore[misc]  # transformers has no types
    """Stops an answer that nobody is waiting for any longer."""

    def __init__(self, chatter: Chatter) -> None:
        self._chatter = chatter

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:  # noqa: ARG002
        return torch.full(input_ids.shape[:1], self._chatter.is_left, device=input_ids.device)


class _AnswerWriter(TextStreamer):  # type: ignore[misc]
    """Writes an answer as it is generated, in whole characters."""

    def __init__(self, chatter: Chatter, turn: int) -> None:
        super().__init__(chatter.loaded.tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._chatter, self._turn = chatter, turn
        self._text, self._tokens = "", 0
        self._begun_s = self._written_s = chatter.stopwatch()

    def put(self, value: torch.Tensor) -> None:
        if not self.next_tokens_are_prompt:
            self._tokens += value.numel()
        super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:  # noqa: ARG002
        self._text += text
        if text and self._chatter.stopwatch() - self._written_s >= WRITE_EVERY_S:
            self.write()

    def write(self, *, is_over: bool = False, problem: Problem | None = None) -> None:
        self._written_s = self._chatter.stopwatch()
        answer = ChatAnswer(
            turn=self._turn,
            text=self._text,
            tokens=self._tokens,
            seconds=self._written_s - self._begun_s,
            is_over=is_over,
            problem=problem,
        )
        self._chatter._put(answer)  # noqa: SLF001 - two halves of one thing


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {CHATTER}")
    add_source_arguments(parser)
    return parser


if __name__ == "__main__":
    try:
        main()
    except MntrainError as error:
        leave_with(error)
