"""Rank requests: asks the ranks of an attempt for a checkpoint, for other settings, or for an
answer in a chat.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_mntrain.model.api import SaveRequest
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.lifecycle.running_changes import (
    SettingsRequest,
    earlier_changes,
    with_changes,
)
from jupyter_mntrain.model.program import program_of
from jupyter_mntrain.model.records.job import TERMINAL, JobRecord
from jupyter_mntrain.model.text.conversation import CHATTER, ChatAnswer, ChatRequest
from jupyter_mntrain.telemetry.chat_files import read_answer
from jupyter_mntrain.telemetry.controls import read_controls, write_controls


def ask_to_save(request: SaveRequest, metrics: Path) -> None:
    """Write a save request where the ranks look for it. Idempotent."""
    known = read_controls(metrics)
    saves = known.saves if request.key in known.saves else (*known.saves, request.key)
    is_stop = known.is_stop or request.is_last
    write_controls(metrics, msgspec.structs.replace(known, saves=saves, is_stop=is_stop))


def ask_for_settings(request: SettingsRequest, record: JobRecord, metrics: Path) -> None:
    """Write a request for other settings where the ranks look for it. Idempotent.

    Raises:
        RefusedError: the attempt has ended or not begun, or another one is running.
        SpecError, RecipeError: it runs no recipe, or cannot run with these settings.
    """
    known = read_controls(metrics)
    if any(one.key == request.key for one in known.settings):
        return
    refuse_settings(request, record)
    settings = (*known.settings, request)
    write_controls(metrics, msgspec.structs.replace(known, settings=settings))


def refuse_save(request: SaveRequest, record: JobRecord) -> None:
    """Check that the ranks can save a checkpoint on request.

    Raises:
        RefusedError: the attempt has ended, another one is running, or the ranks do not take
            requests.
    """
    part, job_id = record.part, record.job_id
    _refuse_over(request.attempt, record)
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


def refuse_settings(request: SettingsRequest, record: JobRecord) -> None:
    """Check that the attempt can change its settings. Raises like :func:`ask_for_settings`."""
    part = record.part
    changes = (*earlier_changes(record.attempt), *part.changes)
    program = program_of(with_changes(record.spec, changes))
    if record.is_queued:
        cause, fix = f"job {record.job_id} has not started yet", "try again once it runs"
        raise RefusedError(cause, fix=fix, node=part.node)
    _refuse_over(request.attempt, record)
    step = max((rank.step or 0 for rank in part.ranks), default=0)
    program.changed(request.settings, step=step, job_id=record.job_id)


def _refuse_over(attempt: int, record: JobRecord) -> None:
    if record.part.state in TERMINAL or attempt != record.attempt.number:
        raise RefusedError(
            f"attempt {attempt} of job {record.job_id} is over",
            fix=f"see whether the job has ended: mntrain status {record.job_id}",
            node=record.part.node,
        )


def refuse_chat(request: ChatRequest, record: JobRecord) -> None:
    """Check that a chat program is running to answer.

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
    """Return the part of the answer that the driver has not received; ``None`` if all of it."""
    answer = read_answer(metrics)
    if answer is None or answer.turn != request.turn:
        return None
    rest = answer.text[request.received :]
    if request.turn and not rest and not answer.is_over:
        return None
    new: ChatAnswer = msgspec.structs.replace(answer, text=rest)
    return new
