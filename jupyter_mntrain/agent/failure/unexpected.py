"""Unexpected errors: gives each an id, under which its traceback is in the agent's log."""

from __future__ import annotations

import logging
import secrets

from jupyter_mntrain.model.failure.fixes import fix_of
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.failure.system_errors import KINDS, told_of

log = logging.getLogger("mntrain.agent")

_NO_THREAD = "can't start new thread"
"""CPython's, at a limit of the system."""


def unexpected(error: BaseException, doing: str, *, node: str, kind: Kind | None = None) -> Problem:
    """Log an error with its traceback, and return its problem.

    Args:
        doing: what failed, for people, like "cannot start its part".
        kind: if the error itself does not say; default: ``BROKEN``.
    """
    number = secrets.token_hex(4)
    log.error("error %s: %s", number, doing, exc_info=error)
    told = f"{type(error).__name__}: {error}"
    fix = f"see the agent's log on {node} for {number}"
    if isinstance(error, OSError) and error.strerror is not None:
        told, known = told_of(error), KINDS.get(error.errno or 0)
        if known is not None:
            kind, fix = known, f"{fix_of(known)}; {fix}"
    elif isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        kind = Kind.TOO_MANY_PROCESSES
        fix = f"{fix_of(kind)}; {fix}"
    return Problem(kind=kind or Kind.BROKEN, cause=f"{doing}: {told}", fix=fix, id=number)
