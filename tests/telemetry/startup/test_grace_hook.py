"""Grace hook: torchrun waits for its ranks as long as a stop says."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from jupyter_mntrain.telemetry.startup.mntrain_call_hooks import after_import
from jupyter_mntrain.telemetry.startup.mntrain_grace_hook import (
    MODULE,
    SLACK_S,
    STOP_FILE,
    give_grace,
)


class Context:
    """Like torch's, whose signature a test below compares."""

    def close(self, death_sig: object = None, timeout: float = 30) -> tuple[object, float]:
        return death_sig, timeout


@pytest.mark.parametrize(
    ("stop", "timeout"),
    [
        (None, 30),
        ({"grace_s": 2.0}, 30),
        ({"grace_s": 70.0}, 70 + SLACK_S),
        ({"grace_s": "soon"}, 30),
        ({}, 30),
    ],
)
def test_the_grace_of_a_stop_is_also_torchruns(
    stop: dict[str, object] | None, timeout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if stop is not None:
        (tmp_path / STOP_FILE).write_text(json.dumps(stop))
    module = ModuleType(MODULE)
    module.PContext = type("PContext", (Context,), {"close": Context.close})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)
    give_grace(str(tmp_path / "metrics"), after_import)
    context = module.PContext()
    assert context.close() == (None, timeout)
    assert context.close("SIGINT") == ("SIGINT", timeout)
    assert context.close("SIGINT", 4000) == ("SIGINT", 4000)


def test_torchs_own_is_called_like_that():
    from torch.distributed.elastic.multiprocessing.api import PContext

    own = inspect.signature(PContext.close)
    assert list(own.parameters) == list(inspect.signature(Context.close).parameters)
