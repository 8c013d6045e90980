"""A package that is too old or in the way, as errors tell it in the places where they arise."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.command_line.needed_packages import blamed_package


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package in a folder that PYTHONPATH names, imported."""
    (tmp_path / "oldone.py").write_text("def call(f):\n    return f(now=1)\n")
    monkeypatch.setattr(metadata, "requires", lambda _: ["oldone>=2.0"])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "oldone", raising=False)
    return "oldone"


BREAKS = [
    "from oldone import Later",
    "import oldone; oldone.Later",
    "import oldone.later",
    "import oldone; oldone.call(lambda: 0)",
]


@pytest.mark.parametrize("code", BREAKS)
def test_a_private_package_is_blamed_with_its_folder(
    private: str, tmp_path: Path, code: str
) -> None:
    with pytest.raises((ImportError, AttributeError, TypeError)) as caught:
        exec(code, {"__name__": "jupyter_mntrain.trial"})
    told = blamed_package(caught.value)
    assert told is not None
    assert all(str(tmp_path) in one for one in told)


@pytest.mark.parametrize("code", ["1 / 0", "import no_such_module", "{}.missing"])
def test_nothing_else_is_blamed(private: str, code: str) -> None:
    with pytest.raises(Exception) as caught:
        exec(code, {"__name__": "jupyter_mntrain.trial"})
    assert blamed_package(caught.value) is None


def test_an_old_version_in_the_environment_is_told_with_the_one_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import msgspec

    def missing() -> object:
        return msgspec.of_a_later_version

    with pytest.raises(AttributeError) as caught:
        missing()
    assert blamed_package(caught.value) is None  # new enough: a defect
    monkeypatch.setattr(metadata, "version", lambda _: "0.2.9")
    told = blamed_package(caught.value)
    assert told is not None
    assert "0.2.9" in told[0]
    assert "msgspec>=" in told[1]


class _NeedsALaterOne:
    """Importing the notebook's room needs a later version of the private package."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "jupyter_mntrain.notebook":
            __import__("oldone.later")


def test_the_magics_name_it_too(
    private: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jupyter_mntrain.notebook", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NeedsALaterOne, *sys.meta_path])
    with pytest.raises(ImportError) as caught:
        jupyter_mntrain.load_ipython_extension(None)  # type: ignore[arg-type]  # not reached
    assert str(tmp_path) in str(caught.value)
