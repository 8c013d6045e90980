"""Models of the hub: what is fetched of them, and what is said if they cannot be had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.families.hub_fetching import HubReport, _cached, wanted_files
from jupyter_mntrain.families.hub_troubles import hub_error, hub_note
from jupyter_mntrain.launch.files.hub_names import HubId
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.recipe.memory import model_config
from jupyter_mntrain.recipe.parse import parse_recipe
from tests.standin.hub import HubServer
from tests.wording import says

INDEX = "model.safetensors.index.json"
SHARDS = {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
BESIDE = {"config.json", "tokenizer.json", "tokenizer.model", "chat_template.jinja", "LICENSE"}
OTHERS = {"README.md", "onnx/model.onnx", "original/params.json", "tf_model.h5", "model.gguf"}
ID = "org/tiny"


@pytest.mark.parametrize(
    ("weights", "wanted"),
    [
        ({"model.safetensors", "pytorch_model.bin"}, {"model.safetensors"}),
        ({INDEX, *SHARDS, "consolidated.safetensors"}, {INDEX, *SHARDS}),
        ({INDEX, "pytorch_model.bin"}, {"pytorch_model.bin"}),
        ({"pytorch_model.bin", "model.fp16.safetensors"}, {"pytorch_model.bin"}),
        ({"flax_model.msgpack"}, set()),
    ],
)
def test_only_what_training_needs_is_fetched(weights: set[str], wanted: set[str]) -> None:
    found = wanted_files(BESIDE | OTHERS | weights, lambda _: SHARDS)
    assert set(found) == BESIDE | wanted


def folder(path: Path, **config: object) -> Path:
    path.mkdir()
    shape = {"model_type": "llama", "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2}
    shape |= {"intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    (path / "config.json").write_bytes(msgspec.json.encode(shape | config))
    (path / "model.safetensors").write_bytes(b"0" * 70_000)
    (path / "README.md").write_text("words")
    return path


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    made = folder(tmp_path_factory.mktemp("hub") / "tiny")
    with HubServer({ID: made, "org/gated": made}, frozenset({"org/gated"})) as server:
        yield server


@pytest.fixture
def environment(tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)


def run(what: str, text: str) -> HubReport:
    program = "jupyter_mntrain.families.hub_fetching"
    done = subprocess.run([sys.executable, "-m", program, what, text], capture_output=True)  # noqa: PLW1510
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=HubReport)


@pytest.mark.usefixtures("environment")
def test_a_model_is_found_fetched_and_found_without_the_hub(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = parse_recipe("", [f"model.path={ID}"])
    assert model_config(recipe) is None
    found = run("find", ID)
    assert found.commit == hub.commit(ID)
    assert found.files == ("config.json", "model.safetensors")
    assert hub.sent == {f"{ID}/config.json": 1}
    assert model_config(recipe)["hidden_size"] == 16  # type: ignore[index]
    copy = HubId(ID, found.commit)
    assert model_config(parse_recipe("", [f'model.path="{copy.copy}"'])) is not None

    fetched = run("fetch", str(copy))
    assert fetched.done_bytes == fetched.total_bytes == found.total_bytes
    weights = Path(fetched.directory) / "model.safetensors"
    assert weights.read_bytes() == b"0" * 70_000
    assert hub.sent == {f"{ID}/config.json": 1, f"{ID}/model.safetensors": 1}

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for text in (ID, str(copy)):
        offline = run("fetch", text)
        assert offline.is_offline
        assert (offline.commit, offline.files) == (found.commit, found.files)
    absent = run("find", "org/other")
    assert absent.trouble == "silent"
    assert "refused" in absent.said


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("kept", "listed", "finds", "fetches"),
    [
        ({"config.json"}, True, True, False),
        ({"config.json"}, False, True, False),
        ({"config.json", "model.safetensors"}, False, True, True),
        ({"config.json", "model.safetensors"}, True, True, False),
        ({"model.safetensors"}, False, False, False),
    ],
)
def test_without_the_hub_its_list_says_what_a_copy_needs(
    kept: set[str], listed: bool, finds: bool, fetches: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder, commit = tmp_path / "home" / "hub" / "models--org--kept", "a" * 40
    directory = folder / "snapshots" / commit
    directory.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    for name in kept:
        (directory / name).write_text("{}")
    if listed:
        (folder / "trees").mkdir()
        every: dict[str, object] = {
            "config.json": {},
            "model.safetensors": {},
            "tokenizer.json": {},
        }
        (folder / "trees" / f"{commit}.json").write_bytes(msgspec.json.encode({"files": every}))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    for is_whole, has in ((False, finds), (True, fetches)):
        found = _cached(HubId("org/kept"), is_whole=is_whole)
        assert (found is not None) == has
        if found is not None:
            assert found.is_listed == listed
            assert ("tokenizer.json" in found.files) == listed


@pytest.mark.usefixtures("environment")
def test_only_a_connection_is_called_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HOME", str(tmp_path / "file" / "home"))
    found = run("find", ID)
    assert found.trouble == "other"
    assert "Not a directory" in found.said


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("text", "trouble"),
    [("org/gated", "gated"), ("org/none", "missing"), (f"{ID}@v9", "no-revision")],
)
def test_a_model_that_cannot_be_had(text: str, trouble: str) -> None:
    assert run("find", text).trouble == trouble


@pytest.mark.parametrize(
    ("report", "environment", "cause", "fix"),
    [
        (HubReport(trouble="gated"), {}, "gated", "HF_TOKEN"),
        (HubReport(trouble="missing"), {}, "no such model", "absolute path"),
        (HubReport(trouble="no-revision"), {}, "no such branch", "huggingface.co/org/tiny"),
        (HubReport(trouble="no-config"), {}, "no config.json", "files"),
        (HubReport(trouble="no-weights"), {}, "neither safetensors", "files"),
        (HubReport(trouble="full", said="7000", total_bytes=10**9), {}, "7", "HF_HOME"),
        (HubReport(trouble="no-library", said="No module"), {}, "No module", "pip install"),
        (HubReport(trouble="silent", said="refused"), {}, "cannot reach", "hf download org/tiny"),
        (HubReport(trouble="silent"), {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE", "hf download"),
        (HubReport(trouble="other", said="502"), {}, "502", "hf download"),
    ],
)
def test_every_trouble_is_one_line_with_what_to_do(
    report: HubReport, environment: dict[str, str], cause: str, fix: str
) -> None:
    error = hub_error(HubId(ID), report, environment)
    assert isinstance(error, MntrainError)
    assert ID in error.cause
    assert "\n" not in str(error)
    assert says(cause, error.cause)
    assert says(fix, error.fix)


def test_a_mistyped_folder_is_called_one() -> None:
    silent = HubReport(trouble="silent", said="refused")
    assert says("no such directory here", hub_error(HubId("models/lima"), silent, {}).cause)
    assert "directory" not in hub_error(HubId(ID, "a" * 40), silent, {}).cause


def test_an_older_commit_of_the_cache_is_said() -> None:
    commit = "a" * 40
    kept = HubReport(commit=commit, is_offline=True, said="timed out")
    note = hub_note(HubId(ID), kept)
    assert note is not None
    assert commit in note.cause
    assert "timed out" in note.cause
    assert hub_note(HubId(ID, commit), kept) is None
    assert hub_note(HubId(ID), HubReport(commit=commit)) is None
