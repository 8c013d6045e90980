"""Light agent: the modules that a real agent imports, and its memory at rest."""

from __future__ import annotations

import re

import pytest

from tests.agent.live import REST_MB, LiveAgent, launch, resident_mb
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
def test_an_agent_stays_light_while_it_serves_drivers_and_after_a_job(new_agent):
    told = new_agent(environment={"PYTHONPROFILEIMPORTTIME": "1"})
    serve(told)
    imported = set(IMPORTED.findall(told.log()))
    assert "jupyter_mntrain.agent.main" in imported
    assert imported.isdisjoint(HEAVY | OTHER_ROOMS)
    # Telling costs memory itself.
    as_usual = new_agent()
    serve(as_usual)
    assert resident_mb(as_usual.process.pid) < REST_MB


def serve(agent: LiveAgent) -> None:
    """To a driver, and a job."""
    with agent.stream() as stream:
        lines = stream.iter_lines()
        assert all(next(lines) for _ in range(3))
    agent.ended(launch([agent], "pass"))
