"""Prometheus reporter: serves the newest numbers."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_mntrain.metrics.definitions import meaning_of
from jupyter_mntrain.train.reports.base import NUMBERS, Run

_UNITS = {"train/step_s": "train/step_seconds", "train/tokens_per_s": "train/tokens_per_second"}
"""Prometheus' convention is to spell out units."""


class Prometheus:
    """Serves ``/metrics`` on a port of this node while the job runs."""

    def __init__(self, run: Run) -> None:
        from prometheus_client import CollectorRegistry, Gauge, Info, start_http_server

        registry = CollectorRegistry()
        known = NUMBERS | {"train/step": meaning_of("step")}
        self._labels = labels = {"run": run.name or "", "project": run.project}

        def gauge(name: str, help_text: str) -> Gauge:
            theirs = f"mntrain_{_UNITS.get(name, name)}".replace("/", "_")
            return Gauge(theirs, help_text, list(labels), registry=registry)

        self._gauges = {name: gauge(name, help_text) for name, help_text in known.items()}
        recipe = Info("mntrain_recipe", "The recipe", registry=registry)
        recipe.info({k.replace(".", "_"): str(value) for k, value in run.hyperparameters.items()})
        section = run.recipe.report
        self._server, self._thread = start_http_server(
            section.prometheus_port, addr=section.prometheus_address, registry=registry
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in {**values, "train/step": float(step)}.items():
            self._gauges[name].labels(**self._labels).set(value)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
