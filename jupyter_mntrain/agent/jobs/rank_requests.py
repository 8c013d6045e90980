"""Rank requests: asks the ranks of an attempt for a checkpoint, or for an answer in a chat."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord
from jupyter_mntrain.model.text.conversation import CHATTER, ChatAnswer, ChatRequest
from jupyter_mntrain.telemetry.chat_files import read_answer
from jupyter_mntrain.telemetry.controls import Controls, read_controls, write_controls


def ask_to_save(request: SaveRequest, metrics: Path) -> None:
    """Write the request where the ranks look for it. Idempotent."""
    known = read_controls(metrics)
    saves = known.saves if request.key in known.saves else (*known.saves, request.key)
    write_controls(metrics, Controls(saves=saves, is_stop=known.is_stop or request.is_last))


def refuse_save(request: SaveRequest, record: JobRecord) -> None:
    """Check that a request can be met.

    Raises:
        RefusedError: the attempt has ended, another one is running, or the ranks do not take
            requests.
    """
    part, job_id = record.part, record.job_id
    if part.state in TERMINAL or request.attempt != record.attempt.number:
        raise RefusedError(
            f"attempt {request.attempt} of job {job_id} is over",
            fix=f"see whether the job has ended: mntrain status {job_id}",
            node=part.node,
        )
    if part.saves:
        return
    cause, fix = f"job {job_id} has not finished a step yet", "try again after its first step"
    if part.state == "running":
        cause = f"the ranks of job {job_id} do not save on request"
        fix = (
            "use the built-in trainer with a checkpoint directory, or a ControlReader and "
            "recorder.start(saves=True) in a script"
        )
    raise RefusedError(cause, fix=fix, node=part.node)


def refuse_chat(request: ChatRequest, record: JobRecord) -> None:
    """Check that somebody is there to answer.

    Raises:
        RefusedError: the job has ended, another attempt is running, or it answers no questions.
    """
    part, job_id = record.part, record.job_id
    if record.spec.entry[:2] != ("-m", CHATTER):
        cause = f"job {job_id} answers no questions"
        raise RefusedError(cause, fix=f"chat with its model: mntrain chat {job_id}", node=part.node)
    if part.state in TERMINAL or request.attempt != record.attempt.number:
        cause, fix = f"the chat {job_id} is over", "begin another one: mntrain chat"
        raise RefusedError(cause, fix=fix, node=part.node)


def news_for(metrics: Path, request: ChatRequest) -> ChatAnswer | None:
    """What the driver has not received of the answer; ``None`` if there is nothing new."""
    answer = read_answer(metrics)
    if answer is None or answer.turn != request.turn:
        return None
    rest = answer.text[request.received :]
    if request.turn and not rest and not answer.is_over:
        return None
    new: ChatAnswer = msgspec.structs.replace(answer, text=rest)
    return new
