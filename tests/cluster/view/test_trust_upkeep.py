"""Trust upkeep: what cannot be written down is told once."""

from __future__ import annotations

import asyncio
import errno
import time
from contextlib import suppress

import pytest

from jupyter_mntrain.cluster.discovery.discovery import StaticDiscovery
from jupyter_mntrain.cluster.view import cluster_view
from jupyter_mntrain.cluster.view.cluster_view import ClusterView

pytestmark = pytest.mark.anyio


async def test_a_read_only_home_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked = 0
    live = ClusterView("default", discovery=StaticDiscovery(), clock=time)

    def look() -> None:
        nonlocal looked
        looked += 1
        if looked == 3:
            raise asyncio.CancelledError
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(live.desk, "look", look)
    monkeypatch.setattr(cluster_view, "TRUST_EVERY_S", 0)
    with suppress(asyncio.CancelledError):
        await live._keep_trust()
    assert looked == 3
    assert len(caplog.records) == 1
