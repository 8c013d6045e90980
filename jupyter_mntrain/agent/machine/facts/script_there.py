"""Script there: a job's script that is not sent to this node, since it lies in a folder of it."""

from __future__ import annotations

from jupyter_mntrain.model.records.doctor.machine import AskedScript, FoundScript
from jupyter_mntrain.model.whereabouts import in_home

MOST_BYTES = 1 << 20
"""Of a script: what people write by hand is far smaller."""

MOST_BESIDE = 2000


def read_script_there(asked: AskedScript) -> FoundScript:
    """The first of these names that can be read. Blocks."""
    folder = in_home(asked.folder)
    for name in asked.names:
        path = folder / name
        try:
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            text = path.read_text()
            beside = {one.name for at in (folder, path.parent) for one in at.iterdir()}
        except (OSError, UnicodeDecodeError):
            continue
        return FoundScript(name=name, text=text, beside=tuple(sorted(beside))[:MOST_BESIDE])
    return FoundScript()
