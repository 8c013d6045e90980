"""Walk of a launch: the packages through which a job's spec passes in the driver, in order.

``python -m benchmarks.launch_walk`` starts two agents on loopback, types ``mntrain launch`` with a
small recipe, and follows every call that has the spec among its arguments. A stay is a run of such
calls in one package; a return is a stay in a package that the spec has been to before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import jupyter_mntrain
from benchmarks.loopback import ADDRESSES, PORT, two_agents
from jupyter_mntrain.cli import main as mntrain
from jupyter_mntrain.model.records.job import JobRecord, JobSpec, JobView

PACKAGE = Path(jupyter_mntrain.__file__).parent
RECIPE = '[model]\npreset = "llama-tiny"\n[train]\nsteps = 2\n'
OWN = {"model"}
"""Records and their parts: every package has them, so a call there is no stay."""


class Walk:
    """The calls with a spec, noted by a profiler in every thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._frames: dict[int, FrameType] = {}
        """Held, so that what a coroutine goes on with is not taken for another call."""

    def __enter__(self) -> Walk:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = event == "call" and code.co_filename.startswith(f"{PACKAGE}/")
        if not is_ours or id(frame) in self._frames:
            return
        self._frames[id(frame)] = frame
        room, slash, _ = code.co_filename[len(f"{PACKAGE}/") :].partition("/")
        if slash and room not in OWN and any(map(_is_spec, _arguments(frame))):
            self.calls.append((room, code.co_qualname))

    def stays(self) -> list[tuple[str, list[str]]]:
        """Each stay: its package, and the functions that had the spec, in order."""
        return [
            (room, list(dict.fromkeys(name for _, name in calls)))
            for room, calls in groupby(self.calls, key=lambda call: call[0])
        ]


def _arguments(frame: FrameType) -> Iterator[Any]:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return (frame.f_locals.get(name) for name in names)


def _is_spec(value: object) -> bool:
    """Whether it is the spec, or what was made of it and is passed on in its place; no record of a
    job that has begun.
    """
    if isinstance(value, JobRecord | JobView):
        return False
    return isinstance(value, JobSpec) or isinstance(getattr(value, "spec", None), JobSpec)


def walk_of_a_launch(folder: Path) -> Walk:
    """Launch a job of two ranks, and follow its spec until the command has ended."""
    recipe = folder / "walk.toml"
    recipe.write_text(RECIPE)
    where = [word for address in ADDRESSES for word in ("--agent", f"{address}:{PORT}")]
    with two_agents() as (cluster, _):
        words = ["--cluster", cluster.name, *where]
        with Walk() as walk:
            code = mntrain([*words, "launch", str(recipe), "--skip-doctor"])
        for job in cluster.jobs():
            cluster.job(job.job_id).stop()
    assert code == 0, "the launch failed"
    return walk


def main() -> None:
    """Print the stays, and how many there are."""
    with TemporaryDirectory() as folder:
        stays = walk_of_a_launch(Path(folder)).stays()
    for number, (room, names) in enumerate(stays, 1):
        print(f"{number:3}  {room:12}  {', '.join(names)}")
    rooms = {room for room, _ in stays}
    print(f"{len(stays)} stays in {len(rooms)} packages: {len(stays) - len(rooms)} returns")


if __name__ == "__main__":
    main()
