"""Problem file: passes a rank's problem to its agent, next to torchelastic's own error file."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import msgspec

from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.text.foreign import LINE_LIMIT, NAME_LIMIT, encodable

PROBLEM_FILE = "problem.json"
MOST_DETAIL = 10 * LINE_LIMIT
"""Characters of a traceback; its end tells the most."""


def hand_over(problem: Problem, environment: Mapping[str, str] = os.environ) -> None:
    """Write why this rank is about to fail; do nothing outside of torchrun or on a full disk."""
    error_file = environment.get("TORCHELASTIC_ERROR_FILE")
    if not error_file:
        return
    timed = msgspec.structs.replace(
        problem,
        cause=encodable(problem.cause),
        fix=encodable(problem.fix),
        detail=encodable(problem.detail),
        time_s=problem.time_s or time.time(),
    )
    with contextlib.suppress(OSError):
        write_atomically(Path(error_file).with_name(PROBLEM_FILE), msgspec.json.encode(timed))


def leave_with(error: MntrainError) -> NoReturn:
    """Exit with an error that was handed over to the agent, logged in one line per node."""
    hand_over(error.problem)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        raise SystemExit(f"mntrain: {error}") from None
    raise SystemExit(error.exit_code) from None


def handed_over(directory: Path) -> Problem | None:
    """Read the problem that a rank wrote; ``None`` if there is none, or it is unreadable.

    Its texts are cut: a rank may have put anything into them, and every driver gets them.
    """
    try:
        told = msgspec.json.decode((directory / PROBLEM_FILE).read_bytes(), type=Problem)
    except (OSError, msgspec.MsgspecError):
        return None
    return msgspec.structs.replace(
        told,
        cause=told.cause[:LINE_LIMIT],
        fix=told.fix[:LINE_LIMIT],
        node=None if told.node is None else told.node[:NAME_LIMIT],
        detail=told.detail[-MOST_DETAIL:],
    )
