"""Unexpected errors: what the number of an operating system's error says."""

from __future__ import annotations

import errno

import pytest

from jupyter_mntrain.agent.failure.own_errors import unexpected
from jupyter_mntrain.model.failure.kinds import Kind


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, Kind.DISK_FULL),
        (errno.EROFS, Kind.READ_ONLY),
        (errno.EMFILE, Kind.TOO_MANY_FILES),
        (errno.EIO, Kind.DISK_ERROR),
        (errno.EXDEV, Kind.BROKEN),
    ],
)
def test_the_number_of_an_error_names_its_kind(number: int, kind: Kind) -> None:
    problem = unexpected(OSError(number, "what the kernel says", "/a/file"), "saving", node="n0")
    assert problem.kind is kind
    assert problem.id in problem.fix
    assert "/a/file" in problem.cause
