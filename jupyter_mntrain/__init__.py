"""Train one model across several machines from a notebook.

``%load_ext jupyter_mntrain`` gives the magics; :class:`Cluster` is the same thing in Python.
Names are loaded on first use: importing the package costs milliseconds and never imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_mntrain.model.lazy import lazy_names

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_mntrain.cluster import Cluster, Job
    from jupyter_mntrain.model.errors import MntrainError
    from jupyter_mntrain.model.records.job import JobSpec, Participant
    from jupyter_mntrain.sources.awaited_launch import awaited_job
    from jupyter_mntrain.telemetry import Recorder
    from jupyter_mntrain.telemetry.callbacks.accelerate import MntrainTracker
    from jupyter_mntrain.telemetry.callbacks.lightning import MntrainLightningCallback
    from jupyter_mntrain.telemetry.callbacks.transformers import MntrainCallback
    from jupyter_mntrain.telemetry.controls import ControlReader

__version__ = "0.1.0"

__all__ = [
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

__getattr__ = lazy_names(
    __name__,
    {
        "Cluster": "jupyter_mntrain.cluster",
        "ControlReader": "jupyter_mntrain.telemetry.controls",
        "Job": "jupyter_mntrain.cluster",
        "JobSpec": "jupyter_mntrain.model.records.job",
        "MntrainCallback": "jupyter_mntrain.telemetry.callbacks.transformers",
        "MntrainError": "jupyter_mntrain.model.errors",
        "MntrainLightningCallback": "jupyter_mntrain.telemetry.callbacks.lightning",
        "MntrainTracker": "jupyter_mntrain.telemetry.callbacks.accelerate",
        "Participant": "jupyter_mntrain.model.records.job",
        "Recorder": "jupyter_mntrain.telemetry",
        "awaited_job": "jupyter_mntrain.sources.awaited_launch",
    },
)


def load_ipython_extension(shell: InteractiveShell) -> None:
    from jupyter_mntrain.command_line.needed_packages import blamed_package, line_of

    try:
        from jupyter_mntrain.notebook import load
    except Exception as error:  # whatever a package of another version ends in
        if told := blamed_package(error):
            raise ImportError(line_of(told)) from None
        raise
    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    from jupyter_mntrain.notebook import unload

    unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-mntrain"}]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from jupyter_mntrain.server.app import MntrainApp

    return [{"module": "jupyter_mntrain.server.app", "app": MntrainApp}]
