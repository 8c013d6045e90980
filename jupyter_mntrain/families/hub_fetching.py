"""Hub fetching: a process that downloads a model from the Hugging Face hub, or finds what there is.

It writes reports as JSON, one a line, while it works; the last one says what came of it. A process,
as huggingface_hub is slow to load, cannot be interrupted, and reads its variables only once.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

import msgspec

from jupyter_mntrain.families.directories import (
    CONFIG,
    FORMATS,
    listed_files,
)
from jupyter_mntrain.launch.files.hub_names import HubId, hub_id, snapshot
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.text.brief import first_line

REPORT_INTERVAL_S: Final = 0.5
"""The Hugging Face hub may take this long to say what a model is, and a download says this often
how much has come."""
PATIENCE_S: Final = tunables.seconds("files.hub_timeout_s")

Trouble = Literal[
    "",
    "gated",
    "missing",
    "no-revision",
    "no-config",
    "no-weights",
    "silent",
    "full",
    "no-library",
    "other",
]

_BESIDE: Final = ("*.json", "*.txt", "*.model", "*.jinja", "LICENSE*", "NOTICE*")
"""What is wanted besides weights: config, tokenizer, chat template, generation settings."""


_SILENCES: Final = frozenset({"ConnectionError", "TimeoutError", "TransportError", "Timeout"})
"""Errors of no connection, Python's own and those of HTTP clients: huggingface_hub's changes by
version.
"""


class HubReport(Record, frozen=True):
    """What is known about a model on the hub.

    Args:
        commit: that its revision is; empty while that is not known.
        directory: of it in the cache; complete only after a download.
        files: those that training needs.
        done_bytes, total_bytes: of these files; 0 = unknown.
        is_offline: the hub did not tell, ``said`` why, and this is what the cache has.
        is_listed: ``files`` are by the hub's list, new or kept; else by what the cache has.
        trouble: why it cannot be had; ``said``: in huggingface_hub's words, or its size in bytes.
    """

    commit: str = ""
    directory: str = ""
    files: tuple[str, ...] = ()
    done_bytes: int = 0
    total_bytes: int = 0
    is_offline: bool = False
    is_listed: bool = True
    trouble: Trouble = ""
    said: str = ""


def wanted_files(
    names: Collection[str], listed: Callable[[str], Collection[str]]
) -> tuple[str, ...]:
    """Return the files of a repository that training needs.

    Weights are left out if none are in a format that we read.

    Args:
        names: of all its files.
        listed: the files that an index of its lists.
    """
    found = next(_weights(names, listed), ())
    listings = {one.listing for one in FORMATS}
    beside = (
        name
        for name in names
        if "/" not in name
        and name not in listings
        and any(fnmatchcase(name, pattern) for pattern in _BESIDE)
    )
    return tuple(sorted({*found, *beside}))


def _weights(
    names: Collection[str], listed: Callable[[str], Collection[str]]
) -> Iterator[tuple[str, ...]]:
    """Yield the files of each complete format, the better one first."""
    for one in FORMATS:
        if one.listing in names and set(shards := listed(one.listing)) <= set(names):
            yield (one.listing, *shards)
        if one.single in names:
            yield (one.single,)


def has_weights(files: Collection[str]) -> bool:
    return any(name in files for one in FORMATS for name in (one.listing, one.single))


def main(arguments: Sequence[str]) -> int:
    """Run ``find ID`` or ``fetch ID``."""
    what, text = arguments
    model = hub_id(text)
    if model is None or what not in ("find", "fetch"):
        raise SystemExit(f"usage: {__name__} find|fetch ORG/NAME[@REVISION]")
    try:
        found = _find(model, is_whole=what == "fetch")
        if what == "fetch" and not found.trouble and not found.is_offline:
            found = _fetch(model, found)
    except Exception as error:  # noqa: BLE001 - huggingface_hub's HTTP client changes by version
        found = HubReport(trouble=_trouble(error), said=first_line(error))
    _tell(found)
    return 0


def _find(model: HubId, *, is_whole: bool) -> HubReport:
    """Fetch the config and list the other files; without the hub, use what the cache has.

    Args:
        is_whole: without the hub its config is not enough.
    """
    from huggingface_hub import HfApi, hf_hub_download

    try:
        # It fails at once where there is no network; a download would try for half a minute.
        told = HfApi().model_info(
            model.repo, revision=model.revision, files_metadata=True, timeout=PATIENCE_S
        )
    except Exception as error:
        if (found := _cached(model, is_whole=is_whole)) is None:
            raise
        return msgspec.structs.replace(found, said=first_line(error))
    sizes = {one.rfilename: one.size or 0 for one in told.siblings or ()}
    if CONFIG not in sizes:
        return HubReport(trouble="no-config")
    config = Path(hf_hub_download(model.repo, CONFIG, revision=model.revision))
    directory, commit = config.parent, config.parent.name

    def listed(listing: str) -> Collection[str]:
        file = Path(hf_hub_download(model.repo, listing, revision=commit))
        return set(listed_files(file).values())

    files = wanted_files(sizes.keys(), listed)
    return HubReport(
        commit=commit,
        directory=str(directory),
        files=files,
        total_bytes=sum(sizes[one] for one in files),
        trouble="" if has_weights(files) else "no-weights",
    )


def _cached(model: HubId, *, is_whole: bool) -> HubReport | None:
    """Return what the cache has, if nothing else is needed."""
    directory = snapshot(model)
    if directory is None or not (directory / CONFIG).is_file():
        return None
    known = _kept_list(directory)

    def listed(listing: str) -> Collection[str]:
        file = directory / listing
        return set(listed_files(file).values()) if file.is_file() else ()

    names = {one.name for one in directory.iterdir()} if known is None else known
    files = wanted_files(names, listed)
    if is_whole and (not has_weights(files) or lost_files(directory, files)):
        return None
    return HubReport(
        commit=directory.name,
        directory=str(directory),
        files=files,
        is_offline=True,
        is_listed=known is not None,
    )


def _kept_list(directory: Path) -> Collection[str] | None:
    """Return all files of a snapshot's commit, from the list that huggingface_hub keeps of them."""
    kept = directory.parent.parent / "trees" / f"{directory.name}.json"
    try:
        return set(json.loads(kept.read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def lost_files(directory: Path, files: Collection[str]) -> list[str]:
    return [one for one in files if not (directory / one).is_file()]


def _fetch(model: HubId, found: HubReport) -> HubReport:
    from huggingface_hub import snapshot_download

    folder = Path(found.directory).parent.parent
    files = (Path(found.directory) / name for name in found.files)
    there = sum(one.stat().st_size for one in files if one.exists())
    lacking = found.total_bytes - there
    if lacking > (free := shutil.disk_usage(folder).free):
        return msgspec.structs.replace(found, trouble="full", said=str(free))
    with _reporting(found, folder / "blobs", there):
        directory = snapshot_download(
            model.repo, revision=found.commit, allow_patterns=list(found.files)
        )
    if lost := lost_files(Path(directory), found.files):
        why = f"{len(lost)} of {len(found.files)} files were not downloaded, like {lost[0]}"
        return msgspec.structs.replace(found, trouble="other", said=why)
    return msgspec.structs.replace(found, directory=directory, done_bytes=found.total_bytes)


@contextmanager
def _reporting(found: HubReport, blobs: Path, there: int) -> Iterator[None]:
    """Report how much has been written to disk until the download is over."""
    before, is_over = _held(blobs), threading.Event()

    def report() -> None:
        while not is_over.wait(REPORT_INTERVAL_S):
            done = min(there + max(0, _held(blobs) - before), found.total_bytes)
            _tell(msgspec.structs.replace(found, done_bytes=done))

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        yield
    finally:
        is_over.set()
        reporter.join()


def _held(folder: Path) -> int:
    size = 0
    for one in folder.glob("*"):
        try:
            size += one.stat().st_blocks * 512
        except OSError:  # renamed meanwhile
            continue
    return size


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, ImportError):
        return "no-library"
    from huggingface_hub import errors

    kinds: tuple[tuple[type[Exception], Trouble], ...] = (
        (errors.GatedRepoError, "gated"),
        (errors.RepositoryNotFoundError, "missing"),
        (errors.RevisionNotFoundError, "no-revision"),
        (errors.HfHubHTTPError, "other"),
        (errors.LocalEntryNotFoundError, "silent"),  # it is about a connection, too
    )
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "full"
    names = {one.__name__ for one in type(error).__mro__}
    usual: Trouble = "silent" if names & _SILENCES else "other"
    return next((name for kind, name in kinds if isinstance(error, kind)), usual)


def _tell(report: HubReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
