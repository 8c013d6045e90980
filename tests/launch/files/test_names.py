"""Names and roots: nothing that is sent leads out of the folders that an owner has allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.agent.machine.files.roots import LargeRoots
from jupyter_mntrain.launch.files.names import LargeName, parse_large_name, parse_root
from jupyter_mntrain.model.errors import RefusedError, SpecError

HOSTILE = (
    *("models:", "models", ":llama", "models:..", "models:../x", "models:a/../b", "models:/etc"),
    *("models:a//b", "models:.hidden", "models:a/.mntrain", "models:a\0b", "models:a\n", "../x:a"),
    *("models:a/b/c/d/e", "Models:a", "models:~root", f"models:{'a' * 200}", "models:a/"),
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        parse_large_name(text)


def test_a_name_may_have_folders() -> None:
    assert parse_large_name("models:meta-llama/Llama-3.1") == ("models", "meta-llama/Llama-3.1")


@pytest.mark.parametrize("text", ["models", "models=", "models=data", "../m=/data", "=/data"])
def test_a_root_is_a_name_and_an_absolute_path(text: str) -> None:
    with pytest.raises(SpecError):
        parse_root(text)


def test_every_node_has_its_own_folder_of_a_root(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    roots = LargeRoots(tmp_path / "state", [f"models={tmp_path / 'big'}"])
    assert roots.path(LargeName("models", "llama")) == tmp_path / "big" / "llama"
    assert roots.path(LargeName("data", "c4")) == tmp_path / "state" / "files" / "data" / "c4"
    with pytest.raises(SpecError):
        roots.path(LargeName("other", "x"))


def test_a_root_that_is_not_mounted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        LargeRoots(tmp_path, [f"models={tmp_path / 'absent'}"]).base("models")


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    roots = LargeRoots(tmp_path / "state")
    base = roots.base("models")
    (base / "out").symlink_to(tmp_path)
    (base / "up").symlink_to("..")
    (base / "loop").symlink_to("loop")
    for name in ("out", "out/x", "up", "up/data", "loop"):
        with pytest.raises(RefusedError):
            roots.path(LargeName("models", name))
