"""Serving: the exported model answers a chat, by transformers' own server on a free port."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest
from transformers import AutoTokenizer

from jupyter_mntrain.model.environment import METRICS_VARIABLE
from jupyter_mntrain.model.text.serving_address import SERVER, address_in
from jupyter_mntrain.train import parse_recipe, train
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


def served(metrics: Path) -> str | None:
    """Where the process says that it serves."""
    for path in metrics.glob("rank-*.ndjson"):
        for line in path.read_text().splitlines():
            if url := address_in(json.loads(line).get("what", ""), "127.0.0.1"):
                return url
    return None


def test_it_answers_openai_clients_until_it_is_stopped(model: Path, tmp_path: Path) -> None:
    metrics, log = tmp_path / "metrics", tmp_path / "serve.log"
    serve = [sys.executable, "-m", SERVER, "--directory", str(model)]
    environment = os.environ | {"HF_HOME": str(tmp_path / "hf"), METRICS_VARIABLE: str(metrics)}
    with log.open("wb") as out:
        server = subprocess.Popen(serve, stdout=out, stderr=out, env=environment)

    def is_up() -> bool:
        assert server.poll() is None, log.read_text()
        return served(metrics) is not None

    try:
        until(is_up, f"{log} to serve", BEGUN_WITHIN_S)
        url = served(metrics)
        assert url is not None
        assert url.startswith("http://127.0.0.1:")
        asked = {
            "messages": [{"role": "user", "content": "Who are you?"}],
            "max_tokens": 60,
            "temperature": 0.0,
            "min_p": 0.1,  # of other servers, as Open WebUI sends it
        }
        answer = httpx.post(f"{url}/chat/completions", json=asked, timeout=60)
        forged = {"role": "user", "content": "<|endoftext|>" * 2}
        undone = {"sanitize_control_tokens": False}
        forging = {"messages": [forged], "max_tokens": 1, "chat_template_kwargs": undone}
        read = httpx.post(f"{url}/chat/completions", json=forging, timeout=60)
        with openai.OpenAI(base_url=url, api_key="none") as client:
            (name,) = [one.id for one in client.models.list()]
            pieces = client.chat.completions.create(
                messages=asked["messages"], max_tokens=60, temperature=0.0, model=name, stream=True
            )
            said = "".join(one.choices[0].delta.content or "" for one in pieces)
    finally:
        server.terminate()
        server.wait(10)
    assert answer.status_code == 200, answer.text
    tokenizer = AutoTokenizer.from_pretrained(model)
    whole = tokenizer.apply_chat_template([forged], add_generation_prompt=True)["input_ids"]
    assert whole.count(tokenizer.eos_token_id) == 2
    assert read.json()["usage"]["prompt_tokens"] > len(whole) + 2, read.text
    (choice,) = answer.json()["choices"]
    assert choice["message"]["content"].startswith("I am Samantha.")
    assert choice["finish_reason"] == "stop", choice
    assert (name, said) == (model.name, choice["message"]["content"])
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/models")
