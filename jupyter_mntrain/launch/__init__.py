"""Launching: turns a job spec into processes."""

from jupyter_mntrain.launch.torchrun import NodeCommand, torchrun_command

__all__ = ["NodeCommand", "torchrun_command"]
