"""Light agent: the modules that a real agent imports, and its memory at rest."""

from __future__ import annotations

import re

import pytest

from tests.agent.live import REST_MB, launch, resident_mb
from tests.test_package import modules_after

HEAVY = {
    "IPython",
    "cloudpickle",
    "httpcore",
    "httpx",
    "ipywidgets",
    "jupyter_server",
    "matplotlib",
    "numpy",
    "pandas",
    "rich",
    "torch",
    "transformers",
}
"""Needed only by a command line, a notebook, the page's server or a rank."""

OTHER_ROOMS = {f"jupyter_mntrain.{room}" for room in ("cluster", "notebook", "show", "verbs")}

IMPORTED = re.compile(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", re.MULTILINE)


def test_an_agent_starts_light():
    loaded = modules_after(
        "from jupyter_mntrain.agent.__main__ import run\n"
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()): assert run(['run', '--help']) == 0"
    )
    assert "jupyter_mntrain.agent.main" in loaded
    assert loaded.isdisjoint(HEAVY | OTHER_ROOMS)


@pytest.mark.slow
def test_an_agent_stays_light_while_it_serves_drivers_and_after_a_job(agent):
    with agent.stream() as stream:
        lines = stream.iter_lines()
        assert all(next(lines) for _ in range(3))
        agent.ended(launch([agent], "pass"))
    imported = set(IMPORTED.findall(agent.log()))
    assert "jupyter_mntrain.agent.main" in imported
    assert imported.isdisjoint(HEAVY | OTHER_ROOMS)
    assert resident_mb(agent.process.pid) < REST_MB


@pytest.fixture
def agent(new_agent):
    return new_agent(environment={"PYTHONPROFILEIMPORTTIME": "1"})
