"""Files that only this user may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from jupyter_mntrain.model.files import (
    SHARED,
    close_to_others,
    private_directory,
    write_atomically,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_is_private_unless_it_is_to_be_shared(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_atomically(tmp_path / "own", b"")
        write_atomically(tmp_path / "all", b"", mode=SHARED)
        private_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert (mode(tmp_path / "own"), mode(tmp_path / "all")) == (0o600, 0o644)
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)


def test_an_open_directory_is_closed_with_all_that_is_in_it(tmp_path: Path) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    (state / "jobs").mkdir(parents=True)
    for path in (state / "jobs" / "record.json", state / "run", outside):
        path.write_text("")
        path.chmod(0o755)
    (state / "link").symlink_to(outside)
    (state / "broken").symlink_to(tmp_path / "nowhere")
    state.chmod(0o755)
    assert close_to_others(state)
    assert (mode(state), mode(state / "jobs"), mode(state / "run")) == (0o700, 0o700, 0o700)
    assert mode(outside) == 0o755
    assert not close_to_others(state)
