"""Ended jobs of a node, in pages. Pure."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.lifecycle.listing import JobPage, JobQuery, holds
from jupyter_mntrain.model.records.job import JobRecord

_CURSOR = re.compile(r"([0-9]{1,19}\.[0-9]{1,19}) (\S{1,24})", re.ASCII)

Place = tuple[float, str]
"""In the list: newest first, ties by id."""


def page_of(records: Iterable[JobRecord], query: JobQuery) -> JobPage:
    """The page of ended jobs that a query asks for.

    Raises:
        SpecError: ``after`` is not from an earlier page.
    """
    after = _place_in(query.after) if query.after else (-math.inf, "")
    matching = (
        record
        for record in records
        if not record.is_live and _place(record) > after and _matches(record, query)
    )
    # Records are unpacked one by one: all at once, a thousand of them took 5 MB.
    rest = heapq.nsmallest(query.limit + 1, matching, key=_place)
    page = rest[: query.limit]
    is_last = len(page) == len(rest)
    return JobPage(
        records=tuple(record.without_files() for record in page),
        next=None if is_last else _cursor(page[-1]),
    )


def _place(record: JobRecord) -> Place:
    return -round(record.attempt.submitted_s, 6), record.job_id


def _cursor(record: JobRecord) -> str:
    return f"{record.attempt.submitted_s:.6f} {record.job_id}"


def _place_in(cursor: str) -> Place:
    if (found := _CURSOR.fullmatch(cursor)) is None:
        raise SpecError(f"{cursor!r} is not the end of a page", fix="use next of the page before")
    return -float(found[1]), found[2]


def _matches(record: JobRecord, query: JobQuery) -> bool:
    if query.run and record.run != query.run:
        return False
    begun = (query.begins, f"j-{query.begins}")
    if query.begins and not record.job_id.startswith(begun):
        return False
    if not query.search:
        return True
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
    return holds(query.search, words, record.spec.entry)
