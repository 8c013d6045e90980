"""Tables that name each of something: a forgotten row's message says where it belongs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def same_rows(wanted: Iterable[object], found: Iterable[object], missing: str, left: str) -> None:
    """Fail where a table and what it lists differ.

    Args:
        wanted: what there is.
        found: the table's rows.
        missing: what to do about one without a row, with ``{}`` for its name.
        left: what to do about a row of something that there is not.
    """
    has_rows_for(wanted, found, missing)
    has_rows_for(found, wanted, left)


def has_rows_for(wanted: Iterable[object], found: Iterable[object], missing: str) -> None:
    """Fail where something has no row; there may be others."""
    lacking = sorted({str(one) for one in wanted} - {str(one) for one in found})
    if lacking:
        pytest.fail("\n".join(missing.format(one) for one in lacking), pytrace=False)
