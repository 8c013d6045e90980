"""Audit log: private, bounded, and without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_mntrain.trust import audit
from jupyter_mntrain.trust.audit import Audit


def test_a_line_says_what_by_whom_and_from_where(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.touch(mode=0o644)
    path.chmod(0o644)
    log = Audit(path, clock=lambda: 0.0)
    log.note("start", job="j-1", attempt="2", who="driver ada", where="10.0.0.1")
    assert json.loads(path.read_text()) == {
        "time": "1970-01-01T00:00:00Z",
        "what": "start",
        "job": "j-1",
        "attempt": "2",
        "who": "driver ada",
        "from": "10.0.0.1",
        "outcome": "done",
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_it_keeps_no_secret_and_no_endless_word(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit.log")
    log.note("start", job="j" * 5000, who="x", outcome="refused: no hf_" + "aB3dE5gH7j" * 3)
    text = log.path.read_text()
    assert "aB3d" not in text
    assert len(text) < 1000


def test_its_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "LARGEST_BYTES", 2000)
    log = Audit(tmp_path / "audit.log")
    for number in range(200):
        log.note("start", job=f"j-{number}", who="x")
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["audit.log", "audit.log.1"]
    assert all(path.stat().st_size < 2200 for path in kept)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in kept)
    assert "j-199" in log.path.read_text()


def test_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    Audit(tmp_path / "nowhere" / "audit.log").note("start", who="x")
