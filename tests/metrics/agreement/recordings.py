"""Recorded jobs: journals from agents of a real cluster; ``record.py`` makes them."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jupyter_mntrain.metrics.history import HistoryBuilder
from jupyter_mntrain.model.lifecycle.rollup import roll_up
from jupyter_mntrain.model.records.job import JobRecord
from jupyter_mntrain.model.records.metrics import JournalLine
from tests.standin.training import Sample

DIRECTORY = Path(__file__).with_name("recorded")
NAMES = tuple(sorted(path.name.removesuffix(".json.gz") for path in DIRECTORY.glob("*.json.gz")))


@dataclass(frozen=True)
class NodeRecording:
    """One node's record of a job, and its journal."""

    record: JobRecord
    journal: tuple[JournalLine, ...]


@dataclass(frozen=True)
class Recording:
    """A job as its nodes kept it at ``now_s``."""

    nodes: tuple[NodeRecording, ...]
    now_s: float

    @property
    def sample(self) -> Sample:
        """As the drivers of the job have it."""
        view = roll_up(node.record for node in self.nodes)
        builder = HistoryBuilder()
        for node in self.nodes:
            part = node.record.part
            for line in node.journal:
                builder.add(part.node_id, part.node, line)
        return Sample(builder.snapshot(view, is_complete=True), self.now_s)


def load(name: str) -> Recording:
    """Raises: FileNotFoundError: there is no such recording."""
    data = gzip.decompress((DIRECTORY / f"{name}.json.gz").read_bytes())
    return msgspec.json.decode(data, type=Recording)
