"""Reference: pages that are made of the code, so that they cannot say anything else."""

from collections.abc import Callable
from typing import Final

from scripts.website.reference import (
    commands,
    kinds,
    metrics,
    python,
    records,
    roles,
    settings,
    variables,
)

REFERENCE: Final[dict[str, Callable[[], str]]] = {
    "commands.md": commands.page,
    "python.md": python.page,
    "rest.md": records.page,
    "roles.md": roles.page,
    "settings.md": settings.page,
    "variables.md": variables.page,
    "kinds.md": kinds.page,
    "metrics.md": metrics.page,
}
"""Each page, by the name of its file."""
