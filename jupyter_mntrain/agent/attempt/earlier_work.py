"""Earlier work: moves what an attempt wrote in its working directory to the next attempt.

A script that keeps its state there, as torch's own tutorials do (``snapshot.pt``), goes on as under
torchrun, which restarts it in the same folder. Standard library only: the supervisor does it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_ATTEMPT = re.compile(r"attempt-(\d+)")


def earlier_attempt(attempt: Path) -> Path | None:
    """Return the newest earlier attempt on this node that has started ranks; ``None`` if there is
    none.

    What one wrote that was ended before that may be torn: files of a project.

    Args:
        attempt: its directory, ``jobs/ID/attempt-N``.
    """
    number = int(attempt.name.rpartition("-")[2])
    found = {
        int(match[1]): one
        for one in attempt.parent.iterdir()
        if (match := _ATTEMPT.fullmatch(one.name)) and int(match[1]) < number
    }
    started = (found[one] for one in sorted(found, reverse=True) if _has_started(found[one]))
    return next(started, None)


def take_over(attempt: Path) -> None:
    """Move what the earlier attempt left into this one's folder, and leave a link in its place.

    Raises:
        OSError: it cannot be moved. What is not moved stays where it was.
    """
    earlier = earlier_attempt(attempt)
    if earlier is None:
        return
    work = attempt / "work"
    # Where one in between has taken it over, and started no rank, it is there.
    source = (earlier / "work").resolve()
    _move(source, work, (earlier / "command.json").stat().st_mtime_ns)
    source.rmdir()
    source.symlink_to(os.path.relpath(work, source.parent))


def _has_started(attempt: Path) -> bool:
    try:
        return any((attempt / "ranks").iterdir()) and (attempt / "work").is_dir()
    except OSError:
        return False


def _move(source: Path, target: Path, sent_ns: int) -> None:
    """Move files into a folder. Those that the attempt changed replace what was sent; others do
    not.

    Args:
        sent_ns: when everything had been sent.
    """
    for entry in list(os.scandir(source)):
        place = target / entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and place.is_dir() and not place.is_symlink():
            _move(source / entry.name, place, sent_ns)
            (source / entry.name).rmdir()
        elif place.exists() and entry.stat(follow_symlinks=False).st_mtime_ns <= sent_ns:
            Path(entry.path).unlink()
        else:
            Path(entry.path).replace(place)
