"""Whereabouts: who runs this process, in which folder, and where it keeps things.

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
    """The user's name; ``uid-1000620000`` where that number has none, as in many containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # before Python 3.13, and from there on
        return f"uid-{os.getuid()}"


def name_user() -> None:
    """Have other programs find a name of this user as well: torch before 2.13 cannot compile
    without one (pytorch#140765), nor is torchvision imported.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = user_name()


def current_folder() -> Path:
    """Where this process is; where it was, if that has been deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD") or "/")


def kept_folder(kept: Kept, program: str | None = PROGRAM) -> Path:
    """Where this user's programs keep such files: absolute; it may not exist yet.

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
    """Whether a path lies where this user's files are kept, or is a folder above that."""
    for kept in FOLDERS:
        try:
            folder = kept_folder(kept)  # type: ignore[arg-type]  # its keys are those
        except SpecError:
            continue
        if folder.is_relative_to(path) or Path(path).is_relative_to(folder):
            return True
    return False


def in_home(path: str | os.PathLike[str]) -> Path:
    """A path with ``~`` and ``~user`` replaced where the system knows those, as a shell does."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises instead
