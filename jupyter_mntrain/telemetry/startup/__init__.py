"""Startup: code that runs in each Python process of a job before its script, and files it writes.

The supervisor puts this directory first on ``PYTHONPATH``: so it works for any script, and for any
Python, even one without mntrain. The rest of the program reads the files with
:mod:`jupyter_mntrain.telemetry.startup.exit_record`.
"""

from __future__ import annotations

from pathlib import Path

STARTUP_DIRECTORY = Path(__file__).parent
