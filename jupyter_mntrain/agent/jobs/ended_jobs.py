"""Ended jobs of a node, listed page by page. Pure."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable
from typing import Protocol

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.lifecycle.listing import JobPage, JobQuery, holds
from jupyter_mntrain.model.records.job import JobRecord

_CURSOR = re.compile(r"([0-9]{1,19}\.[0-9]{1,19}) (\S{1,24})", re.ASCII)

Place = tuple[float, str]
"""In the list: newest first, ties by id."""

Seen = Callable[[JobRecord], JobRecord]


class Listed(Protocol):
    """A job in the list. Records may be packed: a thousand are listed again and again."""

    @property
    def place(self) -> Place: ...
    @property
    def is_live(self) -> bool: ...
    @property
    def record(self) -> JobRecord: ...


def page_of(jobs: Iterable[Listed], query: JobQuery, seen: Seen = lambda record: record) -> JobPage:
    """Return the page of ended jobs that a query asks for. It reads only that page's records, and
    for a search or a run also those before them.

    Args:
        seen: what the reader may see of a record: a search finds nothing else, or guesses at a
            secret would be answered.

    Raises:
        SpecError: ``after`` is not from an earlier page.
    """
    after = _place_in(query.after) if query.after else (-math.inf, "")
    matching = (
        job for job in jobs if not job.is_live and job.place > after and _matches(job, query, seen)
    )
    rest = heapq.nsmallest(query.limit + 1, matching, key=lambda job: job.place)
    page = rest[: query.limit]
    is_last = len(page) == len(rest)
    return JobPage(
        records=tuple(job.record.without_files() for job in page),
        next=None if is_last else _cursor(page[-1].place),
    )


def place_of(record: JobRecord) -> Place:
    return -round(record.attempt.submitted_s, 6), record.job_id


def _cursor(place: Place) -> str:
    return f"{-place[0]:.6f} {place[1]}"


def _place_in(cursor: str) -> Place:
    if (found := _CURSOR.fullmatch(cursor)) is None:
        raise SpecError(f"{cursor!r} is not the end of a page", fix="use next of the page before")
    return -float(found[1]), found[2]


def _matches(job: Listed, query: JobQuery, seen: Seen) -> bool:
    begun = (query.begins, f"j-{query.begins}")
    if query.begins and not job.place[1].startswith(begun):
        return False
    if not query.run and not query.search:
        return True
    record = job.record
    if query.run and record.run != query.run:
        return False
    if not query.search:
        return True
    return _is_found(record, query.search) and _is_found(seen(record), query.search)


def _is_found(record: JobRecord, search: str) -> bool:
    nodes = (place.node for place in record.attempt.placements)
    words = (
        record.job_id,
        record.run,
        record.spec.name,
        record.label.name,
        record.label.note,
        *nodes,
        record.submitted_by,
    )
    return holds(search, words, record.spec.entry)
