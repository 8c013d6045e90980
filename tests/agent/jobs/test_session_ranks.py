"""Which jobs a session forks processes for."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.jobs.session_ranks import forks_for
from jupyter_mntrain.model.records.job import SESSION, JobRecord
from jupyter_mntrain.telemetry.session_socket import forking_python
from tests.standin.jobs import record


@pytest.fixture
def session(tmp_path: Path) -> JobRecord:
    offered = forking_python(tmp_path / "metrics")
    offered.parent.mkdir()
    offered.touch()
    command = {"argv": ["python"], "environment": {"HF_HOME": "/models", "RANK": "0"}}
    (tmp_path / "command.json").write_text(json.dumps(command))
    return record(0, "running", spec={"entry": ("-m", SESSION)})


@pytest.mark.parametrize(
    ("environment", "is_forked"),
    [
        ({"HF_HOME": "/models"}, True),
        ({"HF_HOME": "/models", "SCALE": "2", "PYTHONPATH": "src", "NCCL_DEBUG": "INFO"}, True),
        ({"HF_HOME": "/models", "TORCHELASTIC_RUN_ID": "j-1", "TORCH_FR_DUMP": "1"}, True),
        ({}, False),
        ({"HF_HOME": "/elsewhere"}, False),
        ({"HF_HOME": "/models", "PYTHONHASHSEED": "0"}, False),
        ({"HF_HOME": "/models", "LD_PRELOAD": "libjemalloc.so"}, False),
        ({"HF_HOME": "/models", "TORCH_LOGS": "+dynamo"}, False),
    ],
)
def test_only_what_is_read_later_may_differ(
    session: JobRecord, tmp_path: Path, environment: dict[str, str], is_forked: bool
) -> None:
    found = forks_for(session, tmp_path, environment)
    assert found == (forking_python(tmp_path / "metrics") if is_forked else None)


def test_without_a_session_that_runs_nothing_is_forked(session: JobRecord, tmp_path: Path) -> None:
    environment = {"HF_HOME": "/models"}
    over = msgspec.structs.replace(
        session, part=msgspec.structs.replace(session.part, state="succeeded")
    )
    assert forks_for(over, tmp_path, environment) is None
    assert forks_for(record(0, "running"), tmp_path, environment) is None
    (tmp_path / "command.json").write_text("{")
    assert forks_for(session, tmp_path, environment) is None
    forking_python(tmp_path / "metrics").unlink()
    assert forks_for(session, tmp_path, environment) is None
