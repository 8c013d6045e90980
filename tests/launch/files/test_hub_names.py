"""Names of the hub: told from paths and names of large things, and back from the copy's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.launch.files.hub_names import HubId, hub_copy, hub_id, snapshot
from jupyter_mntrain.launch.files.names import parse_large_name

COMMIT = "0123456789" * 4


@pytest.mark.parametrize(
    ("text", "repo", "revision"),
    [
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B", "main"),
        ("org/name@v1.0", "org/name", "v1.0"),
        ("org/name@refs/pr/3", "org/name", "refs/pr/3"),
    ],
)
def test_an_id(text: str, repo: str, revision: str) -> None:
    found = hub_id(text)
    assert found == (repo, revision)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "/models/llama", "~/llama", "./models/llama", "../a/b", "a/b/c", "llama"),
        *("models:org/name", "models:llama", "a--b/c", "a/b..c", "a/b@", "a/b@../x", "a/.b", "a/"),
        *("a/b@v1/../../x", "a/b@v1..v2"),
    ],
)
def test_what_is_no_id(text: str | None) -> None:
    assert hub_id(text) is None


def test_a_copy_is_known_by_its_name() -> None:
    longest = f"{'o' * 40}/{'n' * 55}"
    for repo in ("org/name", "a-b/c-d", longest):
        copy = HubId(repo, COMMIT).copy
        assert hub_copy(str(copy)) == HubId(repo, COMMIT)
        assert parse_large_name(str(copy)) == copy


@pytest.mark.parametrize(
    "text",
    [
        *(None, "org/name", "models:llama", "models:org--name", "models:org--name@main"),
        *(f"data:org--name@{COMMIT}", f"models:org/name@{COMMIT}", "models:.."),
    ],
)
def test_what_is_no_copy(text: str | None) -> None:
    assert hub_copy(text) is None


def test_a_snapshot_is_found_where_huggingface_hub_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    assert snapshot(HubId("org/name")) is None
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    assert snapshot(HubId("org/name")) == snapshot(HubId("org/name", COMMIT)) != None  # noqa: E711
    assert snapshot(HubId("org/name", "v1")) is None
    for content in (b"\xff\xfe", b"..", b""):
        (folder / "refs" / "v1").write_bytes(content)
        assert snapshot(HubId("org/name", "v1")) is None
