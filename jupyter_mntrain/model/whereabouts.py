"""Whereabouts: finds this process's user, current folder and directories.

Also where the system cannot say: in a container with a uid of its own, in a deleted folder,
without HOME.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Final, Literal

import platformdirs

from jupyter_mntrain.model.errors import SpecError

PROGRAM: Final = "mntrain"

Kept = Literal["config", "state", "cache"]

FOLDERS: Final = {
    "config": platformdirs.user_config_path,
    "state": platformdirs.user_state_path,
    "cache": platformdirs.user_cache_path,
}


def user_name() -> str:
    """Return the user's name, or ``uid-1000620000`` if the uid has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13, and from there on
        return f"uid-{os.getuid()}"


def name_user() -> None:
    """Set ``USER`` if this user has no name, so that other libraries find one.

    Without one, torch before 2.13 cannot compile (pytorch#140765), and torchvision fails to import.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = user_name()


def current_folder() -> Path:
    """Return the current folder; the former one if it has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD") or "/")


def kept_folder(kept: Kept, program: str | None = PROGRAM) -> Path:
    """Return the absolute folder for the user's files of a kind, which may not exist yet.

    Args:
        program: whose; ``None`` for the folder above all of them.

    Raises:
        SpecError: the system names no home folder, or a relative one.
    """
    try:
        path = FOLDERS[kept](program)
    except RuntimeError:  # platformdirs before 4.5 returns "~/.config"
        path = Path()
    if path.is_absolute():
        return path
    variable = f"XDG_{kept.upper()}_HOME"
    named = next((one for one in (variable, "HOME") if os.environ.get(one)), None)
    raise SpecError(
        f"{named}={os.environ[named]} is no absolute path"
        if named
        else f"HOME is not set, and the system knows no home folder of {user_name()}",
        fix="export HOME=/FOLDER, one that you can write to",
    )


def is_kept(path: str | Path) -> bool:
    """Whether a path is in one of this user's folders for files, or above one."""
    for kept in FOLDERS:
        try:
            folder = kept_folder(kept)  # type: ignore[arg-type]  # its keys are those
        except SpecError:
            continue
        if folder.is_relative_to(path) or Path(path).is_relative_to(folder):
            return True
    return False


def in_home(path: str | os.PathLike[str]) -> Path:
    """Expand ``~`` and ``~user`` in a path if the system knows them, as a shell does."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises instead
