"""The package's face: what it offers, and what importing it must not cost."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jupyter_mntrain

HEAVY = ("torch", "transformers", "matplotlib", "zeroconf", "tornado", "IPython", "httpx", "rich")


def modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_public_names_are_these():
    assert jupyter_mntrain.__all__ == [
        "Cluster",
        "Job",
        "JobSpec",
        "MntrainError",
        "Participant",
        "Recorder",
        "__version__",
    ]
    for name in jupyter_mntrain.__all__:
        assert getattr(jupyter_mntrain, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        jupyter_mntrain.Clutser  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    assert modules_after("import jupyter_mntrain").isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "module", ["cluster", "verbs", "notebook", "agent.main", "agent.keeper", "train.recipe", "cli"]
)
def test_only_the_trainer_imports_torch(module):
    loaded = modules_after(f"import jupyter_mntrain.{module}")
    assert "torch" not in loaded
    assert "transformers" not in loaded


def test_loading_the_notebook_face_does_not_load_matplotlib():
    assert "matplotlib" not in modules_after("import jupyter_mntrain.notebook")


def test_a_keeper_starts_light():
    loaded = modules_after("import jupyter_mntrain.agent.keeper")
    assert loaded.isdisjoint({"psutil", "msgspec", "tornado", "asyncio"})
