"""Picture file: where a verb writes a requested picture."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.verbs.new_file import file_path
from jupyter_mntrain.verbs.verb import Context


def picture_path(context: Context, text: str, *, may_replace: bool) -> Path:
    """Return the path of the named file; nothing is written yet.

    Args:
        may_replace: also one that is there.

    Raises:
        SpecError: it is there, its directory does not exist, or its ending is of another kind.
    """
    path = context.directory / in_home(text)
    if path.suffix.lower() not in ("", ".png"):
        cause = f"{path.name}: the picture is written as PNG, not as {path.suffix}"
        raise SpecError(cause, fix=f"name it {path.stem}.png")
    return file_path(path, text, may_replace=may_replace)


def write_picture(path: Path, content: bytes) -> None:
    """Write the picture.

    Raises:
        SpecError: it cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        cause = f"{path}: cannot be written: {error.strerror}"
        raise SpecError(cause, fix="choose another file") from None
