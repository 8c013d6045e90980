"""Folders of allocations: each submission makes one, and only such a one is ever removed."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model.sources.request import NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.batch_script import SCRIPT, SECRETS_FOLDER
from jupyter_mntrain.sources.slurm.slurm_options import NAME


class AllocationFolders:
    """Makes them, knows them again, and removes them.

    Args:
        root: under which they are made.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, request: NodesRequest) -> Path:
        """One for a request, which is not made yet."""
        return self.root / f"{request.name}-{secrets.token_hex(4)}"

    def make(self, folder: Path, script: str, command: SlotCommand) -> None:
        """Make one, with the script that runs there and the secrets of what runs."""
        folder.mkdir(parents=True, mode=0o700)
        try:
            (folder / SCRIPT).write_text(script)
            _write_secrets(folder / SECRETS_FOLDER, command)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def is_ours(self, folder: Path, request: NodesRequest) -> bool:
        """Whether a submission of this request made a folder, not a person who works in it. Ours is
        gone once it was given back before anything ran.
        """
        is_place = (
            folder.is_absolute()
            and folder.resolve().parent == self.root.resolve()
            and folder.name.startswith(f"{request.name}-")
        )
        return is_place and (not folder.exists() or (folder / SCRIPT).is_file())

    def remove_secrets(self, folder: Path) -> None:
        """Of one that is ours."""
        shutil.rmtree(folder / SECRETS_FOLDER, ignore_errors=True)

    def remove_unused(self, folder: Path) -> None:
        """Remove one that is ours, unless something has run: then it holds records."""
        if not any(folder.glob(f"{NAME}-*")):
            shutil.rmtree(folder, ignore_errors=True)


def told_in(path: Path) -> str:
    """What was told in a file; nothing if there is none."""
    with suppress(OSError):
        return path.read_text().strip()
    return ""


def _write_secrets(folder: Path, command: SlotCommand) -> None:
    if command.secrets:
        folder.mkdir(mode=0o700)
    for name, text in command.secrets.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(text)
