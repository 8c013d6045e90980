"""Model directory: which files a trained model has, and on which node."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record

CONTENTS = "mntrain.json"
"""Beside the model's own files; nothing that loads the model minds it."""


class ModelFile(Record, frozen=True):
    """One file of weights.

    Args:
        sha256: of its content, hexadecimal.
        host: the node whose rank wrote it; where directories are each node's own, it is only there.
    """

    name: str
    size_bytes: int
    sha256: str
    host: str


class ModelContents(Record, frozen=True):
    """All files of weights, by name.

    Args:
        step: steps that were done.
    """

    step: int
    files: dict[str, ModelFile]
