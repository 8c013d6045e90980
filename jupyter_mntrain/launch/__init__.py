"""Launching: turns a job spec into processes."""

from jupyter_mntrain.launch.base import Launcher
from jupyter_mntrain.launch.torchrun import NodeCommand, torchrun_command

__all__ = ["Launcher", "NodeCommand", "torchrun_command"]
