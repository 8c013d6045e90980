"""A process that the kernel did not start: a limit of the machine, no defect of the script."""

from __future__ import annotations

import fcntl
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_mntrain.agent.failure.rank_end import of_exception
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.telemetry.startup.exit_record import Raised

REFUSED = BlockingIOError(11, "Resource temporarily unavailable")


def fork_exec(*_: object) -> None:
    raise REFUSED


def start_a_worker(_: Path) -> None:
    fork_exec(
        ["sleep", "30"],
        "close_fds",
    )


def lock_a_file(path: Path) -> None:
    with path.open("w") as first, path.open("w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("action", "kind"), [(start_a_worker, Kind.TOO_MANY_PROCESSES), (lock_a_file, Kind.EXCEPTION)]
)
def test_a_refused_fork_is_told_from_other_calls_that_would_block(
    tmp_path: Path, action: Callable[[Path], None], kind: Kind
) -> None:
    try:
        action(tmp_path / "locked")
    except BlockingIOError as error:
        raised = Raised(
            kind=type(error).__name__,
            module="builtins",
            message=str(error),
            monotonic_s=1.0,
            traceback="".join(traceback.format_exception(error)),
        )
    assert of_exception(raised).kind is kind
