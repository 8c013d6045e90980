"""Model contents: the weight files of an exported model, and their nodes."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record

CONTENTS = "mntrain.json"
"""File beside the model's own; libraries that load the model ignore it."""


class ModelFile(Record, frozen=True):
    """One file of weights.

    Args:
        sha256: of its content, hexadecimal.
        host: node whose rank wrote it; in local directories, the only one that has it.
    """

    name: str
    size_bytes: int
    sha256: str
    host: str


class ModelContents(Record, frozen=True):
    """All files of weights, by name.

    Args:
        step: finished steps.
        run: that wrote it, which may replace it; empty outside of a job.
    """

    step: int
    files: dict[str, ModelFile]
    run: str = ""
