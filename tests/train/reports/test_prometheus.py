"""Prometheus reports, scraped."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path

import pytest

from jupyter_mntrain.train.reports.prometheus import Prometheus
from tests.train.reports.reported import STEPS, result, run_of


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def scraped(port: int) -> str:
    url = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as reply:
        body: bytes = reply.read()
        return body.decode()


def test_prometheus_gets_the_newest_numbers_on_loopback() -> None:
    port = free_port()
    server = Prometheus(run_of(prometheus_port=port))
    server.log(3, {"train/loss": 2.5, "train/step_s": 0.25})
    server.log(3, {"evaluation/loss": 3.5})
    page = scraped(port)
    labels = '{project="mntrain",run="j-00000001"}'
    for line in (
        f"mntrain_train_loss{labels} 2.5",
        f"mntrain_train_step_seconds{labels} 0.25",
        f"mntrain_train_step{labels} 3.0",
        f"mntrain_evaluation_loss{labels} 3.5",
    ):
        assert line in page
    assert re.search(r'mntrain_recipe_info\{.*train_steps="100"', page)
    assert server._server.server_address[0] == "127.0.0.1"
    server.close()
    with pytest.raises(OSError, match="refused"):
        scraped(port)


def test_a_port_that_is_taken_is_said_once_and_training_goes_on(
    text: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = result(text, 'report.to=["prometheus"]', f"report.prometheus_port={port}")
    assert len(run.losses) == STEPS
    lines = [line for line in capfd.readouterr().out.splitlines() if "report:" in line]
    assert len(lines) == 1
    assert "prometheus stopped: OSError:" in lines[0]
