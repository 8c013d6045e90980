"""What a node keeps of the Hugging Face hub, as the libraries lay it out."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import try_to_load_from_cache

from jupyter_mntrain.agent.machine.facts import find_in_hub
from jupyter_mntrain.model.records.doctor.machine import HubName

MODEL = HubName(use="model", name="meta-llama/Llama-3.2-1B")
DATA = HubName(use="data", name="HuggingFaceH4/ultrachat_200k")


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    """A cache that has the model, as the library itself says."""
    folder = tmp_path / "hub" / "models--meta-llama--Llama-3.2-1B"
    for name in ("blobs", "refs", "snapshots/abc"):
        (folder / name).mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    (folder / "blobs" / "1f").write_text("{}")
    (folder / "snapshots" / "abc" / "config.json").symlink_to("../../blobs/1f")
    known = try_to_load_from_cache(MODEL.name, "config.json", cache_dir=tmp_path / "hub")
    assert isinstance(known, str)
    return folder


def test_what_was_fetched_is_there(fetched: Path, tmp_path: Path):
    found = find_in_hub(MODEL, {"HF_HOME": str(tmp_path)})
    assert (found.is_there, found.folder) == (True, str(fetched))
    assert find_in_hub(MODEL, {"HF_HUB_CACHE": str(tmp_path / "hub")}).is_there
    assert not find_in_hub(MODEL, {"HF_HOME": str(tmp_path / "other")}).is_there
    assert not find_in_hub(DATA, {"HF_HOME": str(tmp_path)}).is_there


def test_a_download_that_has_not_ended_is_not_there(fetched: Path, tmp_path: Path):
    (fetched / "blobs" / "2e.incomplete").touch()
    assert not find_in_hub(MODEL, {"HF_HOME": str(tmp_path)}).is_there


def test_data_that_was_prepared_is_there(tmp_path: Path):
    (tmp_path / "datasets" / "huggingfaceh4___ultrachat_200k" / "default").mkdir(parents=True)
    assert find_in_hub(DATA, {"HF_HOME": str(tmp_path)}).is_there


@pytest.mark.parametrize(
    ("asked", "name", "value", "is_offline"),
    [
        (MODEL, "HF_HUB_OFFLINE", "1", "HF_HUB_OFFLINE"),
        (MODEL, "TRANSFORMERS_OFFLINE", "true", "TRANSFORMERS_OFFLINE"),
        (MODEL, "HF_DATASETS_OFFLINE", "1", ""),
        (DATA, "HF_DATASETS_OFFLINE", "YES", "HF_DATASETS_OFFLINE"),
        (DATA, "HF_HUB_OFFLINE", "0", ""),
    ],
)
def test_who_may_not_ask_says_why(
    asked: HubName, name: str, value: str, is_offline: str, tmp_path: Path
):
    found = find_in_hub(asked, {"HF_HOME": str(tmp_path), name: value})
    assert found.is_offline == is_offline
    assert found.free_bytes


def test_a_token_is_known_by_its_file_or_variable(tmp_path: Path):
    assert not find_in_hub(MODEL, {"HF_HOME": str(tmp_path)}).has_token
    assert find_in_hub(MODEL, {"HF_HOME": str(tmp_path), "HF_TOKEN": "hf_x"}).has_token
    (tmp_path / "token").write_text("hf_x")
    assert find_in_hub(MODEL, {"HF_HOME": str(tmp_path)}).has_token
