"""Systems: what a driver and a node say where they do not run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from jupyter_mntrain import cli
from jupyter_mntrain.command_line.systems import check_driver_system, check_node_system
from jupyter_mntrain.model.errors import SpecError


@pytest.mark.parametrize("system", ["linux", "darwin", "freebsd14"])
def test_a_driver_runs_wherever_its_libraries_do(system: str) -> None:
    check_driver_system(system)


@pytest.mark.parametrize("system", ["darwin", "freebsd14", "win32"])
def test_only_linux_is_a_node(system: str) -> None:
    check_node_system("linux")
    with pytest.raises(SpecError) as refused:
        check_node_system(system)
    assert refused.value.problem.fix


def test_on_windows_a_command_says_in_one_line_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert cli.main(["nodes", "--json"]) == 2
    problem = json.loads(capsys.readouterr().err)
    assert "Windows" in problem["cause"]
    assert "WSL2" in problem["fix"]


def test_on_a_mac_no_agent_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cli.main(["agent", "run", "--json"]) == 2
    problem = json.loads(capsys.readouterr().err)
    assert "macOS" in problem["cause"]
    assert "mntrain install" in problem["fix"]


WITHOUT_POSIX = """
import sys
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
import jupyter_mntrain.cli, jupyter_mntrain.show.terminal
sys.platform = "win32"
sys.exit(jupyter_mntrain.cli.main(["nodes"]))
"""


def test_the_command_line_is_loaded_without_the_modules_of_posix() -> None:
    """Which Windows does not have: it would end with a traceback instead of a sentence."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "WSL2" in done.stderr
