"""Background threads of a kernel."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable


def background_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Return a daemon thread in an empty context, not started yet.

    ipykernel then assigns output to the running cell, so that it is displayed even while the kernel
    is busy; otherwise it would go to the cell that started the thread.
    """
    run = contextvars.Context().run
    return threading.Thread(target=run, args=(work,), name=name, daemon=True)
