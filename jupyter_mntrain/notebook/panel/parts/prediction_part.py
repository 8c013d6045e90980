"""Prediction in a panel: step time, bubble, links, memory, and a button that measures links."""

from __future__ import annotations

import time
from collections.abc import Callable

import ipywidgets

from jupyter_mntrain.notebook.panel import html as pieces
from jupyter_mntrain.notebook.panel.widgets import block, box, html, put, show
from jupyter_mntrain.verbs.panel.prediction import Prediction


class PredictionPart:
    """The prediction and its button; hidden for a script.

    Args:
        measure: called when the button is clicked.
        clock: Unix time.
    """

    def __init__(self, measure: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.predicted = html()
        self.measure = ipywidgets.Button(
            description="Measure links", tooltip="About a second for each link and direction"
        )
        self.root = box("mnt-part", self.predicted, self.measure)
        self.measure.on_click(lambda _: measure())

    def show(self, prediction: Prediction | None, *, is_busy: bool) -> None:
        text = pieces.predicted(prediction, now_s=self._clock())
        put(self.predicted, value=text)
        show(self.root, is_shown=bool(text))
        links = prediction.links if prediction else None
        show(self.measure, is_shown=any(link.capacity is None for link in links or ()))
        block(self.measure, is_blocked=is_busy)
