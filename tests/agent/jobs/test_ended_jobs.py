"""Pages of ended jobs: none twice, none left out, and only what was asked for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.jobs.ended_jobs import page_of
from jupyter_mntrain.agent.jobs.record_file import RecordFile
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.listing import JobQuery
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.text.secrets import is_secret
from tests.standin.jobs import record

SECRET = "hf_" + "aBcDeFgHiJ" * 3


def ended(number: int, *, submitted_s: float | None = None, **spec: object) -> JobRecord:
    return record(
        0,
        "succeeded",
        job_id=JobId(f"j-{number:08x}"),
        submitted_s=1.7e9 + number / 3 if submitted_s is None else submitted_s,
        spec=spec,
    )


def files(records: list[JobRecord]) -> list[RecordFile]:
    """As an agent holds them: packed."""
    return [RecordFile(Path(one.job_id), one) for one in records]


def listed(records: list[JobRecord], **query: object) -> list[str]:
    """All pages, and that each but the last is full."""
    found: list[str] = []
    asked = msgspec.convert({"limit": 7, **query}, JobQuery)
    while True:
        page = page_of(files(records), asked)
        found += [one.job_id for one in page.records]
        if page.next is None:
            return found
        assert len(page.records) == asked.limit
        asked = msgspec.structs.replace(asked, after=page.next)


@pytest.mark.parametrize("limit", [1, 7, 50, 200])
def test_pages_hold_every_ended_job_once_newest_first(limit: int) -> None:
    records = [ended(number) for number in range(50)]
    assert listed(records, limit=limit) == [one.job_id for one in reversed(records)]


def test_jobs_of_one_moment_are_told_apart() -> None:
    records = [ended(number, submitted_s=1.7e9) for number in range(20)]
    assert listed(records) == [one.job_id for one in records]


def test_what_ends_or_is_deleted_between_two_pages_disturbs_none() -> None:
    records = [ended(number) for number in range(20)]
    first = page_of(files(records), JobQuery(limit=10))
    changed = [*records[:10], *records[11:15], ended(30)]
    rest = page_of(files(changed), JobQuery(limit=10, after=first.next or ""))
    assert [one.job_id for one in rest.records] == [one.job_id for one in reversed(records[:10])]


def test_a_live_job_is_on_no_page_and_no_record_has_files() -> None:
    records = [record(0, "running"), ended(1, files={"a.py": "x" * 1000})]
    page = page_of(files(records), JobQuery())
    (only,) = page.records
    assert (only.job_id, only.spec.files) == ("j-00000001", {})


def test_a_search_finds_what_people_see_and_no_secret() -> None:
    records = [
        ended(1, name="Small LLaMA"),
        ended(2, entry=("train.py", "--data", "/big/books")),
        ended(3, entry=("train.py", "--token", SECRET)),
    ]
    assert is_secret("--token", SECRET)
    assert listed(records, search="llama") == ["j-00000001"]
    assert listed(records, search="BOOKS") == ["j-00000002"]
    assert listed(records, search="node2") == ["j-00000003", "j-00000002", "j-00000001"]
    assert listed(records, search=SECRET[:12]) == []
    assert listed(records, begins="0000000") == ["j-00000003", "j-00000002", "j-00000001"]
    assert listed(records, begins="j-00000002") == ["j-00000002"]
    assert listed(records, run="j-00000002") == ["j-00000002"]


@pytest.mark.parametrize("cursor", ["1", "j-1", "1.5", "nan j-1", "-1.0 j-1", "1.0 j 1", "٣.0 j-1"])
def test_a_cursor_of_no_page_is_refused(cursor: str) -> None:
    with pytest.raises(SpecError):
        page_of([], JobQuery(after=cursor))
