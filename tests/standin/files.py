"""The large files of the stand-in cluster: it notes what it is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.files.job_files import PulledFiles, WrittenFiles
from jupyter_mntrain.cluster.files.pushing import Pushed
from jupyter_mntrain.cluster.handle.large_files import Pulled
from jupyter_mntrain.launch.files.names import LargeName
from jupyter_mntrain.launch.files.records import Cleaned, HeldThing, NodeSpace
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobView
from tests.standin.pipeline import BEGIN_S

SIZE_BYTES = 3 << 30


class StandInFiles:
    """As ``cluster.files``."""

    def __init__(self) -> None:
        self.pushes: list[tuple[LargeName, tuple[str, ...], Path | None, str | None]] = []
        self.pulls: list[tuple[str, LargeName, Path]] = []
        self.cleanings: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = []
        self.failed: dict[str, Problem] = {}
        self.written = WrittenFiles({})
        """What every job wrote."""
        self.differ: tuple[str, ...] = ()
        """Of that, what is not the same on all nodes."""
        self.job_looks: list[tuple[JobId, str, str | None, int | None]] = []
        self.job_pulls: list[tuple[JobId, Path, str, str | None, int | None]] = []

    def push(
        self,
        name: LargeName,
        nodes: Sequence[str] = (),
        *,
        path: Path | None = None,
        source: str | None = None,
        progress: Progress = SILENT,
    ) -> Pushed:
        self.pushes.append((name, tuple(nodes), path, source))
        progress.report(f"pushing {name}", 0, 1)
        chosen = tuple(nodes) or ("wopr", "muthur")
        return Pushed(
            name=str(name),
            size_bytes=SIZE_BYTES,
            nodes=tuple(one for one in chosen if one not in self.failed),
            had=("hal",) if "hal" in chosen else (),
            failed=self.failed,
            sent_bytes={"": SIZE_BYTES},
            took_s=120.0,
        )

    def pull(self, node: str, name: LargeName, to: Path, *, progress: Progress = SILENT) -> Pulled:
        self.pulls.append((node, name, to))
        progress.report(f"pulling {name}", 0, 1)
        return Pulled(str(name), node, str(to), SIZE_BYTES, 60.0)

    def of_job(
        self,
        view: JobView,
        path: str = "",
        *,
        node: str | None = None,
        rank: int | None = None,
        progress: Progress = SILENT,
    ) -> WrittenFiles:
        self.job_looks.append((view.job_id, path, node, rank))
        progress.report(f"looking for files of {view.job_id}", 0, 1)
        return self.written

    def pull_job(
        self,
        view: JobView,
        to: Path,
        path: str = "",
        *,
        node: str | None = None,
        rank: int | None = None,
        progress: Progress = SILENT,
    ) -> PulledFiles:
        self.job_pulls.append((view.job_id, to, path, node, rank))
        progress.report(f"pulling {path}", 0, 1)
        left_out = {"wopr: socket": "not a file"}
        nodes = {"wopr": SIZE_BYTES}
        pulled = PulledFiles(view.job_id, str(to), 3, SIZE_BYTES, nodes, 60.0, left_out)
        folders = {one: one for one in ("wopr", "muthur") if self.differ}
        return msgspec.structs.replace(pulled, differ=self.differ, folders=folders)

    def space(
        self, nodes: Sequence[str] = (), *, progress: Progress = SILENT
    ) -> dict[str, NodeSpace | Problem]:
        progress.report("measuring disks", 0, 1)
        space = NodeSpace(
            roots={"models": "/data/models"},
            free_bytes={"models": 5 << 40},
            things=(
                HeldThing("models:llama", "/data/models/llama", SIZE_BYTES, BEGIN_S - 7200),
                HeldThing("blobs", "/state/blobs", 4096),
            ),
        )
        return dict.fromkeys(nodes or ("wopr", "muthur"), space) | self.failed

    def clean(
        self,
        names: Sequence[LargeName] = (),
        nodes: Sequence[str] = (),
        *,
        is_trial: bool = True,
        progress: Progress = SILENT,
    ) -> dict[str, Cleaned | Problem]:
        self.cleanings.append((tuple(map(str, names)), tuple(nodes), is_trial))
        progress.report("looking", 0, 1)
        things = (HeldThing("blobs", "/state/blobs", 4096),)
        kept = {str(name): "a job that runs or waits here uses it" for name in names}
        return {"wopr": Cleaned(things, kept), "muthur": Cleaned(())} | self.failed
