"""Telemetry: the recorder used inside ranks, formulas and peaks.

The package imports no torch; what measures a model (``device``, ``memory``, the callbacks) does.
"""

from jupyter_mntrain.telemetry.device.peaks import Peak, known_peak
from jupyter_mntrain.telemetry.formulas import ModelShape
from jupyter_mntrain.telemetry.recorder import Recorder

__all__ = ["ModelShape", "Peak", "Recorder", "known_peak"]
