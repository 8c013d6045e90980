"""A job as a picture. matplotlib ``Figure`` objects only, never ``pyplot``: any thread may draw."""

from jupyter_mntrain.show.figure import draw_png

__all__ = ["draw_png"]
