"""Hub models: a recipe's model of the Hugging Face hub, fetched once and brought to a job's nodes.

Its commit is found before a launch asks the nodes anything, and stands in the job's spec from then
on: a job that is resumed, or waits, trains from the same bytes. Its weights come last, once nothing
else is in the way. Ranks never ask the hub.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.files.pushing import FileSeat, push_large
from jupyter_mntrain.cluster.files.swarm import MIB
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.hub_names import HubId, hub_copy, hub_id
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.records.doctor.machine import AskedPath, MachineQuestion
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo
from jupyter_mntrain.recipe.families.directories import refuse_directory
from jupyter_mntrain.recipe.families.hub_fetching import HubReport
from jupyter_mntrain.recipe.families.hub_troubles import hub_error
from jupyter_mntrain.recipe.stored import recipe_of, with_settings, written_recipe

PATH = "model.path"

_PROGRAM = "jupyter_mntrain.recipe.families.hub_fetching"
_decoder = msgspec.json.Decoder(HubReport)


async def with_hub_commit(spec: JobSpec, progress: Progress = SILENT) -> JobSpec:
    """The job with its model's commit and copy, if its recipe names one of the hub by its id.

    Fetches the model's config, by which a launch is planned.

    Raises:
        RecipeError: the hub has no such model, or the trainer cannot use it.
        RefusedError: the hub does not answer, or refuses.
    """
    recipe = written_recipe(spec)
    asked = None if recipe is None else hub_id(recipe.model.path)
    if asked is None:
        return spec
    found = await find_model(asked, progress)
    copy = HubId(asked.repo, found.commit).copy
    placed = with_settings(spec, [f'{PATH}="{copy}"'])
    return msgspec.structs.replace(placed, set_in={**spec.set_in, PATH: "recipe"})


async def find_model(asked: HubId, progress: Progress = SILENT) -> HubReport:
    """Which commit a model is at, and its config, which comes into this machine's cache.

    Raises:
        RecipeError, RefusedError: as for :func:`with_hub_commit`.
    """
    progress.report(f"asking the hub for {asked}", 0, None)
    found = await _run("find", asked, progress)
    refuse_directory(Path(found.directory), str(asked))
    return found


async def bring_hub_model(
    live: ClusterView,
    spec: JobSpec,
    infos: Sequence[NodeInfo],
    clock: Clock,
    progress: Progress = SILENT,
) -> None:
    """Bring the copy of a model of the hub to those of a job's nodes that lack it: from a node that
    has it, else from this machine's cache, into which it is fetched.

    Args:
        infos: of the participants.

    Raises:
        RefusedError: it cannot be had, or a node has no room.
        NodeError: a node does not answer.
    """
    recipe = recipe_of(spec)
    asked = None if recipe is None else hub_copy(recipe.model.path)
    if asked is None:
        return
    seats = await _seats(live, infos, asked)
    lacking = [seat for seat, has in seats if not has]
    if not lacking:
        return
    own = {info.node_id for info in infos}
    holder = next((seat for seat, has in seats if has), None)
    holder = holder or await _elsewhere(live, own, asked)
    if holder is not None:
        await _push(asked, None, holder, lacking, clock, progress)
    else:
        found = await _run("fetch", asked, progress)
        with _folder_of(asked, found) as folder:
            await _push(asked, folder, None, lacking, clock, progress)


async def _push(
    asked: HubId,
    folder: Path | None,
    holder: FileSeat | None,
    lacking: Sequence[FileSeat],
    clock: Clock,
    progress: Progress,
) -> None:
    pushed = await push_large(asked.copy, folder, holder, lacking, clock, progress)
    for node, problem in pushed.failed.items():
        raise RefusedError.of(msgspec.structs.replace(problem, node=problem.node or node))


async def _seats(
    live: ClusterView, infos: Sequence[NodeInfo], asked: HubId
) -> list[tuple[FileSeat, bool]]:
    """Nodes that answer, and whether each has the copy."""
    clients = [(info, live.client_at(info.node_id)) for info in infos]
    able = [(info, client) for info, client in clients if client is not None]
    has = await asyncio.gather(*(_has(client, asked) for _, client in able))
    seats = [FileSeat(info, FileCalls(client)) for info, client in able]
    return list(zip(seats, has, strict=True))


async def _has(client: AgentClient, asked: HubId) -> bool:
    """A copy appears under its name only once all of it has come."""
    question = MachineQuestion(paths=(AskedPath(use="model", path=str(asked.copy)),))
    facts = await client.machine_facts(question)
    return any(one.kind == "folder" and one.asked == str(asked.copy) for one in facts.paths)


async def _elsewhere(live: ClusterView, own: set[NodeId], asked: HubId) -> FileSeat | None:
    """Another node that has the copy."""
    for view in live.nodes:
        info = view.info
        if info is None or view.liveness != "up" or info.node_id in own:
            continue
        with suppress(MntrainError):
            for seat, has in await _seats(live, [info], asked):
                if has:
                    return seat
    return None


@contextmanager
def _folder_of(asked: HubId, found: HubReport) -> Iterator[Path]:
    """A folder with links to what training needs: the cache may have more of the same commit, and
    a copy has to be the same whoever makes it.
    """
    with tempfile.TemporaryDirectory(prefix="mntrain-") as made:
        folder = Path(made) / asked.copy.name
        folder.mkdir()
        for name in found.files:
            (folder / name).symlink_to((Path(found.directory) / name).resolve())
        yield folder


async def _run(what: str, asked: HubId, progress: Progress) -> HubReport:
    """Run the program that talks with the hub, and return what it found.

    Raises:
        RecipeError, RefusedError: it found none.
    """
    # Its own session: Ctrl-C is for this process, which ends it.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _PROGRAM, what, f"{asked.repo}@{asked.revision}"),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
        start_new_session=True,
        env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    found = HubReport(trouble="other", said="the program that asks it ended early")
    try:
        async for line in process.stdout:
            found = _decoder.decode(line)
            if what == "fetch" and not found.trouble and found.total_bytes:
                done, total = found.done_bytes // MIB, found.total_bytes // MIB
                progress.report(f"fetching {asked.repo} from the hub, MiB", done, total)
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if found.trouble:
        raise hub_error(asked, found)
    return found
