"""Data files: the formats that training data has on disk. Pure."""

from __future__ import annotations

from pathlib import PurePath

TEXT_FILES = frozenset({".txt", ".md", ".rst", ".py"})
COMPRESSIBLE_FILES = TEXT_FILES | {".jsonl", ".ndjson", ".json", ".csv", ".tsv"}
COMPRESSIONS = frozenset({".gz", ".zst"})
DATA_FILES = COMPRESSIBLE_FILES | {".parquet", ".arrow"}
"""Suffixes of the files that are read from a folder of data."""


def data_suffix(name: str) -> str:
    """Return the suffix of a data file's format in lower case: ``.jsonl`` for ``A.JSONL.gz``.

    Empty if it has none that is known.
    """
    path = PurePath(name.lower())
    if path.suffix in COMPRESSIONS:
        inner = PurePath(path.stem).suffix
        return inner if inner in COMPRESSIBLE_FILES else ""
    return path.suffix if path.suffix in DATA_FILES else ""
