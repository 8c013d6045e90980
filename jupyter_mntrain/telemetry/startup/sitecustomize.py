"""Python imports this at its start: installs a rank's hooks, then runs a sitecustomize it hides."""

from __future__ import annotations

import os
import sys


def _install() -> None:
    try:
        import mntrain_rank_hooks  # type: ignore[import-not-found]  # next to this file

        mntrain_rank_hooks.install(os.environ)
    except Exception:  # what only explains a failure must never cause one
        return


def _import_hidden() -> None:
    """Import the environment's own sitecustomize, as Python would have done without ours."""
    here = os.path.dirname(os.path.abspath(__file__))
    ours, sys.path[:] = sys.modules[__name__], [p for p in sys.path if os.path.abspath(p) != here]
    del sys.modules[__name__]
    try:
        __import__(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


_install()
_import_hidden()
