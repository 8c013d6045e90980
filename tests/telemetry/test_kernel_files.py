from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.telemetry.kernel_files import kernel_text


def test_a_file_is_read_without_white_space_around_it(tmp_path: Path) -> None:
    (tmp_path / "carrier").write_bytes(b" 1\xff\n")
    assert kernel_text(tmp_path / "carrier") == "1\ufffd"


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert kernel_text(tmp_path / "nothing") == ""
    assert kernel_text(tmp_path) == ""
