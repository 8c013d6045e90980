"""Package: its public names, and what importing it must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jupyter_mntrain
from jupyter_mntrain.model.errors import MissingLibraryError
from tests.wording import reads, wording

HEAVY = ("torch", "transformers", "matplotlib", "zeroconf", "tornado", "IPython", "httpx", "rich")
HEAVY += ("accelerate", "lightning", "pytorch_lightning")

CALLBACKS = {
    "MntrainCallback": (("transformers",), r"pip install 'transformers\[torch\]'"),
    "MntrainLightningCallback": (("lightning", "pytorch_lightning"), "pip install lightning"),
    "MntrainTracker": (("accelerate",), "pip install accelerate"),
}
"""Of other libraries: which, and how to install them."""


def modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_public_names_are_these():
    assert jupyter_mntrain.__all__ == [
        "Cluster",
        "ControlReader",
        "Job",
        "JobSpec",
        "MntrainCallback",
        "MntrainError",
        "MntrainLightningCallback",
        "MntrainTracker",
        "Participant",
        "Recorder",
        "__version__",
        "awaited_job",
    ]
    for name in set(jupyter_mntrain.__all__) - CALLBACKS.keys():
        assert getattr(jupyter_mntrain, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=wording("no attribute 'Clutser'")):
        jupyter_mntrain.Clutser  # noqa: B018


@pytest.mark.slow
def test_a_callback_without_its_library_says_what_to_install():
    """One after the other in one process, which imports torch for them. With its library each is
    there in ``tests/own_scripts/test_callbacks.py``."""
    hidden = sorted({one for libraries, _ in CALLBACKS.values() for one in libraries})
    # None there is how Python itself marks a module that cannot be imported.
    code = f"""
import sys
for one in {hidden}:
    sys.modules[one] = None
import jupyter_mntrain
for name in {list(CALLBACKS)}:
    try:
        getattr(jupyter_mntrain, name)
    except ImportError as error:
        print(type(error).__name__, error)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line, (name, (_, fix)) in zip(done.stdout.splitlines(), CALLBACKS.items(), strict=True):
        assert line.startswith("MissingLibraryError ")
        assert reads(rf"{name} .* not installed here\. Fix: {fix}\.$", line)


def test_a_missing_library_is_an_import_error():
    assert issubclass(MissingLibraryError, ImportError)


def test_importing_the_package_imports_nothing_heavy():
    assert modules_after("import jupyter_mntrain").isdisjoint(HEAVY)


def test_only_the_trainer_imports_torch():
    """One after the other in one process, which says after which of them it was there."""
    rooms = ("cluster.cluster", "verbs.table", "notebook.extension", "agent.main", "cli")
    rooms += ("agent.attempt.supervisor", "recipe.parse", "recipe.memory", "workload.workload")
    look = "print(*{'torch', 'transformers'} & sys.modules.keys())"
    code = [f"import jupyter_mntrain.{room}; print({room!r}, end=' '); {look}" for room in rooms]
    command = [sys.executable, "-c", "\n".join(["import sys", *code])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [line.split() for line in done.stdout.splitlines()] == [[room] for room in rooms]


def test_loading_the_notebook_face_does_not_load_matplotlib():
    assert "matplotlib" not in modules_after("import jupyter_mntrain.notebook.extension")


@pytest.mark.parametrize("module", ["cli", "notebook.completion"])
def test_commands_and_completion_load_what_speaks_to_nodes_on_first_use(module):
    loaded = modules_after(f"import jupyter_mntrain.{module}")
    assert loaded.isdisjoint({"httpx", "cryptography", "zeroconf", "asyncio", "ssl", "matplotlib"})


def test_a_supervisor_starts_light():
    loaded = modules_after("import jupyter_mntrain.agent.attempt.supervisor")
    assert loaded.isdisjoint({"psutil", "msgspec", "tornado", "asyncio"})
