"""Log of the agent: makes text safe before it reaches the terminal or the system's journal."""

from __future__ import annotations

import logging
from typing import Any

from jupyter_mntrain.model.text.foreign import shown, shown_line


class SafeFormatter(logging.Formatter):
    """Formatter with one line per message, whatever it quotes. Only tracebacks have several."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return shown_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        return shown(super().formatException(ei))


def set_up_log() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(SafeFormatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # Failed connections of unknown clients are not an error of this program.
    for name in ("tornado.access", "tornado.general"):
        logging.getLogger(name).setLevel(logging.ERROR)
