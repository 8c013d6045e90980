"""Record file: a record at rest is small, and the same whoever asks for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.jobs.record_file import RecordFile, read_record
from jupyter_mntrain.model.records.job import JobState
from jupyter_mntrain.model.text.label import JobLabel
from tests.standin.jobs import record


def test_a_record_at_rest_is_the_same_and_can_be_changed(tmp_path: Path) -> None:
    known = record(state="succeeded")
    file = RecordFile(tmp_path, known)
    file.write()
    file.rest()
    assert file.record == known
    assert not file.is_active
    label = JobLabel(name="first", time_s=1.0)
    file.update(label=label)
    file.write_changes()
    file.rest()
    assert file.record == read_record(tmp_path) == msgspec.structs.replace(known, label=label)


@pytest.mark.parametrize("state", ["running", "stopping"])
def test_a_record_that_changes_is_not_packed(tmp_path: Path, state: JobState) -> None:
    file = RecordFile(tmp_path, record(state=state))
    before = file.record
    file.rest()
    assert file.record is before
    assert file.is_active
