"""Serving: the exported model answers a chat, served by transformers' own server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from jupyter_mntrain.train import parse_recipe, train
from tests.agent.live import free_port
from tests.waiting import until

pytestmark = pytest.mark.slow

BEGUN_WITHIN_S = 120.0
"""Imports alone take half a minute where both cores are busy."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Trained on one question until it knows nothing else."""
    data, out = tmp_path / "chat.jsonl", tmp_path / "model"
    row = {"prompt": "Who are you?", "completion": "I am Samantha."}
    data.write_text((json.dumps(row) + "\n") * 400)
    words = [
        *("model.preset=llama-tiny", f"data.source={data}", "data.format=chat"),
        *("data.vocabulary_size=270", "data.sequence_length=128", "pipeline.microbatches=1"),
        *("train.device=cpu", "train.steps=60", "train.batch_size=4"),
        *("optimizer.learning_rate=5e-3", f"output.directory={out}"),
    ]
    result = train(parse_recipe("", words))
    assert result.losses[-1] < 0.1
    return out


def test_transformers_serve_answers_a_chat_completion(model: Path, tmp_path: Path) -> None:
    port, log = free_port("127.0.0.1"), tmp_path / "serve.log"
    serve = [str(Path(sys.executable).with_name("transformers")), "serve", str(model)]
    serve += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")}
    with log.open("wb") as out:
        server = subprocess.Popen(serve, stdout=out, stderr=out, env=environment)
    url = f"http://127.0.0.1:{port}"

    def is_up() -> bool:
        assert server.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/health").is_success
        except httpx.TransportError:
            return False

    try:
        until(is_up, f"{log} to serve", BEGUN_WITHIN_S)
        asked = {
            "model": str(model),
            "messages": [{"role": "user", "content": "Who are you?"}],
            "max_tokens": 60,
            "temperature": 0.0,
        }
        answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=60)
    finally:
        server.terminate()
        server.wait(10)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["message"]["content"].startswith("I am Samantha.")
    assert choice["finish_reason"] == "stop", choice
