"""The systemd unit: what it says, and what systemd is told."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from jupyter_mntrain.agent.main import run
from jupyter_mntrain.agent.membership import systemd as service
from jupyter_mntrain.agent.membership.state import Membership, Settings
from jupyter_mntrain.model.errors import MntrainError
from tests.wording import says, wording


@pytest.fixture
def membership() -> Membership:
    settings = Settings(
        name="muthur", listen=(), advertised=(), port=8765, link_capacities=(), python="/py"
    )
    return Membership(cluster="lab", hostname="muthur", joined_s=1.0, settings=settings)


class Systemd:
    """Says yes to everything but what it is told to refuse."""

    def __init__(self, refuses: str = "") -> None:
        self.told: list[list[str]] = []
        self._refuses = refuses

    def __call__(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.told.append(list(words))
        is_refused = bool(self._refuses) and self._refuses in words
        stderr = "Unit is masked." if is_refused else ""
        return subprocess.CompletedProcess(words, int(is_refused), "", stderr)


def test_restarting_the_service_leaves_jobs_alone(membership: Membership, tmp_path: Path) -> None:
    state = tmp_path / "a state 100%"
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(service.unit_text(membership, state, is_root=True))
    own = unit["Service"]
    assert own["KillMode"] == "process"
    assert own["Restart"] == "always"
    words = shlex.split(own["ExecStart"].replace("%%", "%"))
    assert words == [
        *(sys.executable, "-m", "jupyter_mntrain.agent", "run"),
        *("--wait-to-join", "--state-dir", str(state)),
    ]
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert "muthur of cluster lab" in unit["Unit"]["Description"]


@pytest.mark.parametrize("is_root", [True, False])
def test_ranks_may_lock_the_memory_that_infiniband_adapters_use(
    membership: Membership, tmp_path: Path, is_root: bool
) -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(service.unit_text(membership, tmp_path, is_root=is_root))
    assert unit["Service"]["LimitMEMLOCK"] == "infinity"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_itself_finds_nothing_wrong(membership: Membership, tmp_path: Path) -> None:
    unit = tmp_path / service.UNIT
    unit.write_text(service.unit_text(membership, tmp_path, is_root=True))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert service.UNIT not in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("is_root", "control"), [(True, ["systemctl"]), (False, ["systemctl", "--user"])]
)
def test_installing_starts_it_and_removing_ends_it(
    membership: Membership,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_root: bool,
    control: list[str],
) -> None:
    monkeypatch.setattr(service, "has_systemd", lambda: True)
    path, systemd = tmp_path / "units" / service.UNIT, Systemd()
    service.install(membership, tmp_path, path=path, is_root=is_root, run=systemd)
    assert path.exists()
    told = [words for words in systemd.told if words[0] == "systemctl"]
    assert [words[len(control)] for words in told] == ["daemon-reload", "enable", "restart"]
    assert all(words[: len(control)] == control for words in told)
    assert any("loginctl" in words for words in systemd.told) != is_root
    service.remove(path=path, is_root=is_root, run=systemd)
    assert not path.exists()
    assert systemd.told[-2][len(control) :] == ["disable", "--now", service.UNIT]


def test_installing_again_changes_nothing_that_is_right(
    membership: Membership, tmp_path: Path
) -> None:
    path = tmp_path / service.UNIT
    service.install(membership, tmp_path, path=path, is_root=True, run=Systemd())
    written, systemd = path.stat().st_mtime_ns, Systemd()
    service.install(membership, tmp_path, path=path, is_root=True, run=systemd)
    assert path.stat().st_mtime_ns == written
    assert ["systemctl", "start", service.UNIT] in systemd.told
    service.install(membership, tmp_path, path=path, is_root=True, run=systemd, is_restarted=True)
    assert systemd.told[-1] == ["systemctl", "restart", service.UNIT]


def test_a_unit_that_a_user_edited_is_kept_and_an_old_one_of_ours_is_not(
    membership: Membership, tmp_path: Path
) -> None:
    path = tmp_path / service.UNIT
    service.install(membership, tmp_path, path=path, is_root=True, run=Systemd())
    ours = path.read_text()
    other = msgspec.structs.replace(membership, cluster="other")
    service.install(other, tmp_path, path=path, is_root=True, run=Systemd())
    assert path.read_text() != ours, "written by us, for another cluster"
    edited = ours.replace("Restart=always", "Restart=no")
    for text in (edited, "[Service]\nExecStart=/mine\n", ""):
        path.write_text(text)
        said = service.install(membership, tmp_path, path=path, is_root=True, run=Systemd())
        assert path.read_text() == text
        assert str(path) in said[0]


def test_lingering_is_tried_and_only_if_refused_left_to_the_user(
    membership: Membership, tmp_path: Path
) -> None:
    path = tmp_path / service.UNIT
    for refuses, is_left in (("", False), ("enable-linger", True)):
        systemd = Systemd(refuses)
        said = service.install(membership, tmp_path, path=path, is_root=False, run=systemd)
        assert any(words[:2] == ["loginctl", "enable-linger"] for words in systemd.told)
        assert any("sudo loginctl enable-linger" in line for line in said) == is_left


def test_what_systemd_refuses_is_said(
    membership: Membership, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "has_systemd", lambda: True)
    path = tmp_path / service.UNIT
    with pytest.raises(MntrainError, match=r"systemctl enable .*: Unit is masked\."):
        service.install(membership, tmp_path, path=path, is_root=True, run=Systemd("enable"))
    with pytest.raises(MntrainError, match=wording("there is no")):
        service.remove(path=tmp_path / "none.service")


def test_a_node_that_has_not_joined_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["install-service", "--state-dir", str(tmp_path)]) != 0
    assert says("is not a member of a cluster yet. Fix: ", capsys.readouterr().err)


def test_a_unit_is_hardened_as_far_as_jobs_allow(membership: Membership, tmp_path: Path) -> None:
    """What would keep CUDA, data sets or jobs that outlive the agent from working is left out."""
    system = service.unit_text(membership, tmp_path, is_root=True)
    assert "\nNoNewPrivileges=yes\nProtectSystem=yes\n" in system
    user = service.unit_text(membership, tmp_path, is_root=False)
    for text in (system, user):
        for unusable in ("PrivateTmp", "PrivateDevices", "ProtectKernelModules", "ProtectClock"):
            assert unusable not in text
        for unusable in ("DevicePolicy", "ProtectHome", "MemoryDenyWriteExecute", "\nUMask"):
            assert unusable not in text
    assert "Protect" not in user


def test_a_name_cannot_add_lines_to_a_unit(membership: Membership, tmp_path: Path) -> None:
    evil = msgspec.structs.replace(membership, cluster="x\nExecStartPre=/bin/evil %h")
    text = service.unit_text(evil, tmp_path, is_root=True)
    assert "\nExecStartPre" not in text
    assert "%%h" in text
