"""Addresses typed in once and remembered, per cluster: they work without multicast."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import platformdirs

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.errors import SpecError

PRIVATE = 0o600


class _Peers(Record, frozen=True):
    clusters: dict[str, tuple[str, ...]] = {}


class PeerBook:
    """``host:port`` per cluster in the user's configuration directory, mode 0600.

    Several kernels may use it at once: changes are made under a file lock and replace the file
    as a whole.

    Args:
        path: instead of ``peers.json`` in the user's configuration directory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or platformdirs.user_config_path("mntrain") / "peers.json"

    def addresses(self, cluster: str) -> tuple[str, ...]:
        """What is remembered, in the order it was added.

        Raises:
            SpecError: the file is not ours or was damaged.
        """
        return self._read().clusters.get(cluster, ())

    def remember(self, cluster: str, address: str) -> None:
        """Add an address; once is enough."""
        with self._locked():
            known = self.addresses(cluster)
            if address not in known:
                self._write(cluster, (*known, address))

    def forget(self, cluster: str, address: str) -> bool:
        """Remove an address; ``False`` when it was not there."""
        with self._locked():
            known = self.addresses(cluster)
            if address not in known:
                return False
            self._write(cluster, tuple(one for one in known if one != address))
            return True

    def _read(self) -> _Peers:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Peers)
        except FileNotFoundError:
            return _Peers()
        except (msgspec.DecodeError, OSError) as error:
            raise SpecError(
                f"cannot read the remembered nodes in {self.path}: {error}",
                fix="correct the file or delete it",
            ) from error

    def _write(self, cluster: str, addresses: tuple[str, ...]) -> None:
        peers = _Peers(clusters=self._read().clusters | {cluster: addresses})
        # mkstemp makes the file 0600 from its first moment on.
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(peers)))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is a file of its own: replacing the locked file would unlock it.
        lock = self.path.with_suffix(".lock")
        with os.fdopen(os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
