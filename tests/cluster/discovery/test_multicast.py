from __future__ import annotations

import pytest

from jupyter_mntrain.cluster.discovery.discovery import deaf_addresses

pytestmark = pytest.mark.anyio


async def test_an_address_that_is_not_ours_is_not_called_deaf() -> None:
    assert await deaf_addresses(["192.0.2.7"]) == ()
    assert await deaf_addresses([]) == ()


async def test_loopback_hears_itself() -> None:
    assert await deaf_addresses(["127.0.0.1", "127.0.0.2"]) == ()
