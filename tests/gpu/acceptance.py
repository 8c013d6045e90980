"""Acceptance: runs the checks one after another, whatever comes of each."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tests.gpu.findings import Bench, Check, Finding, Item, failed, skipped

LIMIT_S = 600.0
"""Of all checks: those that would begin later are skipped."""


def run_checks(
    checks: Sequence[Check], bench: Bench, tell: Callable[[Finding], None] = lambda _: None
) -> list[Finding]:
    """Run the checks.

    Args:
        tell: is given each finding as soon as there is one.
    """
    begun = time.monotonic()
    findings = []
    for check in checks:
        left_s = LIMIT_S - (time.monotonic() - begun) if bench.is_real else LIMIT_S
        finding = run_check(check, bench, left_s)
        findings.append(finding)
        tell(finding)
    return findings


def run_check(check: Check, bench: Bench, left_s: float = LIMIT_S) -> Finding:
    begun = time.monotonic()
    if not bench.is_real and not check.on_cpu:
        items: tuple[Item, ...] = (skipped("all of it", "needs a GPU"),)
    elif left_s <= 0:
        items = (skipped("all of it", f"the other checks took {LIMIT_S:.0f} s"),)
    else:
        # A CPU only tries the checks; it may have other work.
        limit = min(check.seconds, left_s) if bench.is_real else math.inf
        items = tuple(_items(check, replace(bench, until=begun + limit)))
    return Finding(check.number, check.title, items, time.monotonic() - begun)


def _items(check: Check, bench: Bench) -> Iterator[Item]:
    """A mistake of a check itself is a failure of it, with the line where it is."""
    try:
        yield from check.run(bench)
    except Exception as error:  # noqa: BLE001  # the next check is to run
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        yield failed("the check itself", f"{type(error).__name__} at {where}: {error}")
