"""Folders of allocations: each submission makes one, and no other folder is ever removed."""

from __future__ import annotations

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from jupyter_mntrain.model.sources.source import NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.batch_script import SCRIPT, SECRETS_FOLDER
from jupyter_mntrain.sources.slurm.slurm_options import NAME


class AllocationFolders:
    """Makes, recognizes and removes folders of allocations.

    Args:
        root: under which they are made.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, request: NodesRequest) -> Path:
        """Choose a folder for a request, without making it."""
        return self.root / f"{request.name}-{secrets.token_hex(4)}"

    def make(self, folder: Path, script: str, command: SlotCommand) -> None:
        """Make a folder with its script, and the secrets of the command that runs there."""
        folder.mkdir(parents=True, mode=0o700)
        try:
            (folder / SCRIPT).write_text(script)
            _write_secrets(folder / SECRETS_FOLDER, command)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def is_ours(self, folder: Path, request: NodesRequest) -> bool:
        """Return whether a submission of this request made the folder, rather than a user. True
        also if it is gone because the nodes were given back before anything ran.
        """
        is_place = (
            folder.is_absolute()
            and folder.resolve().parent == self.root.resolve()
            and folder.name.startswith(f"{request.name}-")
        )
        return is_place and (not folder.exists() or (folder / SCRIPT).is_file())

    def remove_secrets(self, folder: Path) -> None:
        """Remove the secrets from one of our folders."""
        shutil.rmtree(folder / SECRETS_FOLDER, ignore_errors=True)

    def remove_unused(self, folder: Path) -> None:
        """Remove one of our folders, unless something has run there: then it holds records."""
        if not any(folder.glob(f"{NAME}-*")):
            shutil.rmtree(folder, ignore_errors=True)


def told_in(path: Path) -> str:
    """Return the stripped text of a file; empty if there is none."""
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
