"""Refusal: why something may not be released."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 - it ends a release, and is no defect
    """A sentence with the cause and the fix."""
