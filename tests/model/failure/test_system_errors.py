"""System errors: what the system refuses on a driver's own machine, in one line or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.system_errors import full_disk, system_errors_told


@pytest.mark.parametrize(
    ("number", "name", "kind"),
    [
        (errno.ENOSPC, None, Kind.DISK_FULL),
        (errno.EMFILE, None, Kind.TOO_MANY_FILES),
        (errno.EACCES, "/data/x", Kind.NO_PERMISSION),
        (errno.EROFS, "/data/x", Kind.READ_ONLY),
        (errno.ENOTDIR, "HOME/.config/mntrain/clusters", Kind.BAD_SPEC),
        (errno.EROFS, "HOME/.config", Kind.READ_ONLY),
        (errno.EACCES, None, None),  # a socket's
        (errno.ECONNRESET, None, None),
        (errno.ENOENT, "/data/x", None),
    ],
)
def test_the_number_of_an_error_is_told_with_a_fix(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    name: str | None,
    kind: Kind | None,
) -> None:
    home = tmp_path / "home"
    for kept in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.delenv(f"XDG_{kept}_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    path = name and name.replace("HOME", str(home))
    error = OSError(number, "what the kernel says", path)
    with pytest.raises(OSError if kind is None else SpecError) as caught, system_errors_told():
        raise error
    if kind is None:
        assert caught.value is error
        return
    assert isinstance(caught.value, SpecError)
    assert caught.value.kind is kind
    assert caught.value.fix
    assert path is None or path in caught.value.cause


def test_a_write_that_is_cut_short_is_a_full_disk() -> None:
    with pytest.raises(SpecError) as caught, system_errors_told():
        raise full_disk(Path("/data/x"))
    assert caught.value.kind is Kind.DISK_FULL
