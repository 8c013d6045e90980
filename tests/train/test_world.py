"""A rank's share of its GPU, where only part of it is offered."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch

from jupyter_mntrain.model.environment import GPU_MEMORY_VARIABLE, HEARTBEAT_VARIABLE
from jupyter_mntrain.train import world


@pytest.mark.parametrize(
    ("offered", "fractions"),
    [(None, []), (20 << 30, [0.25]), (80 << 30, [1.0]), (96 << 30, [1.0])],
)
def test_a_rank_allocates_no_more_than_is_offered(
    monkeypatch: pytest.MonkeyPatch, offered: int | None, fractions: list[float]
) -> None:
    told: list[float] = []
    card = SimpleNamespace(total_memory=80 << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, _: told.append(share)
    )
    if offered is not None:
        monkeypatch.setenv(GPU_MEMORY_VARIABLE, str(offered))
    world._keep_to_lent_memory(torch.device("cuda", 0))
    assert told == fractions


@pytest.mark.parametrize(("own", "told"), [(None, "900"), ("7", "7")])
def test_nccls_heartbeat_lasts_as_long_as_a_rank_may_wait(
    monkeypatch: pytest.MonkeyPatch, own: str | None, told: str
) -> None:
    monkeypatch.setenv(HEARTBEAT_VARIABLE, own or "")  # it is put back after the test
    if own is None:
        monkeypatch.delenv(HEARTBEAT_VARIABLE)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with world.join_world("cpu", 900.0):
        assert os.environ[HEARTBEAT_VARIABLE] == told
