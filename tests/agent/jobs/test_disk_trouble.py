"""A disk that takes no records: said once, however often it is tried."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from jupyter_mntrain.agent.jobs.record_file import DiskTrouble
from jupyter_mntrain.model.files import write_atomically
from jupyter_mntrain.model.ids import JobId


def test_each_cause_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = DiskTrouble(JobId("j-00000001"))
    for number in (errno.ENOSPC, errno.EROFS):

        def refuse(path: Path, *_: object, number: int = number) -> int:
            raise OSError(number, os.strerror(number), str(path))

        monkeypatch.setattr(os, "open", refuse)
        for _ in range(20):
            with trouble.tolerated():
                write_atomically(tmp_path / "record.json", b"{}")
    full, read_only = (one.message for one in caplog.records)
    assert os.strerror(errno.ENOSPC) in full
    assert os.strerror(errno.EROFS) in read_only
