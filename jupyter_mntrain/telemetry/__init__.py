"""Telemetry: the recorder used inside ranks, formulas, and peak rates of devices.

The package imports no torch; what measures a model (``device``, ``memory``, the callbacks) does.
Names are loaded on first use: a driver needs none of them to know its interfaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_mntrain.model.lazy import lazy_names

if TYPE_CHECKING:
    from jupyter_mntrain.telemetry.device.peaks import Peak, known_peak
    from jupyter_mntrain.telemetry.formulas import ModelShape
    from jupyter_mntrain.telemetry.recorder import Recorder

__all__ = ["ModelShape", "Peak", "Recorder", "known_peak"]

__getattr__ = lazy_names(
    __name__,
    {
        "ModelShape": "jupyter_mntrain.telemetry.formulas",
        "Peak": "jupyter_mntrain.telemetry.device.peaks",
        "Recorder": "jupyter_mntrain.telemetry.recorder",
        "known_peak": "jupyter_mntrain.telemetry.device.peaks",
    },
)
