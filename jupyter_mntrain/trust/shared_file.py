"""Shared file: a small JSON file that several processes read and change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.files import PRIVATE, private_directory, write_atomically

T = TypeVar("T")


class SharedFile(Generic[T]):
    """One record in one JSON file, mode 0600.

    It is changed under a file lock and replaced atomically.

    Args:
        path: of the file; its directory is created by the first write.
        kind: the record's type; a missing file reads as its defaults.
        what: describes the content, for errors.
    """

    def __init__(self, path: Path, kind: type[T], *, what: str) -> None:
        self.path = path
        self._kind = kind
        self._what = what

    def read(self) -> T:
        """Read the record.

        Raises:
            SpecError: the file cannot be read or is damaged.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self._kind)
        except FileNotFoundError:
            return self._kind()
        except (msgspec.DecodeError, OSError) as error:
            raise SpecError(
                f"cannot read {self._what} in {self.path}: {error}",
                fix="correct the file or delete it",
            ) from error

    def write(self, content: T) -> None:
        """Replace the record; use :meth:`locked` for read-modify-write."""
        private_directory(self.path.parent)
        text = msgspec.json.format(msgspec.json.encode(content))
        write_atomically(self.path, text)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file, so that no other process changes it."""
        from filelock import FileLock  # most commands only read

        private_directory(self.path.parent)
        # The lock is a separate file: replacing a locked file would unlock it.
        with FileLock(self.path.with_suffix(".lock"), mode=PRIVATE):
            yield
