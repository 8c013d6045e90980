"""Hub models: fetches a recipe's Hugging Face model once, and brings it to a job's nodes.

Its commit is found before a launch asks the nodes anything, and stands in the job's spec from then
on: a job that is resumed, or waits, trains from the same bytes. Its weights come last, once nothing
else is in the way. Ranks never ask the hub.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.files.pushing import MIB, FileSeat, push_large
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.cluster.view.cluster_view import ClusterView
from jupyter_mntrain.families.directories import lacking_tokenizer, refuse_directory
from jupyter_mntrain.families.hub_fetching import HubReport, has_weights, lost_files
from jupyter_mntrain.families.hub_troubles import hub_error, hub_note
from jupyter_mntrain.launch.files.file_calls import FileCalls
from jupyter_mntrain.launch.files.hub_names import HubId, hub_copy, hub_id
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.settings import setting_of
from jupyter_mntrain.model.errors import MntrainError, RefusedError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.model.program import Program
from jupyter_mntrain.model.records.doctor.machine import AskedPath, MachineQuestion
from jupyter_mntrain.model.records.job import JobSpec
from jupyter_mntrain.model.records.node import NodeInfo

PATH = "model.path"

_PROGRAM = "jupyter_mntrain.families.hub_fetching"
_decoder = msgspec.json.Decoder(HubReport)


async def with_hub_commit(
    program: Program,
    progress: Progress = SILENT,
    on_note: Callable[[Problem], object] = bool,
) -> JobSpec:
    """Return the job with the commit and copy of its model, if its recipe names a hub model.

    Fetches the model's config, by which a launch is planned.

    Args:
        on_note: told if the hub did not answer, and the commit is that of this machine's cache.

    Raises:
        RecipeError: the hub has no such model, or the trainer cannot use it.
        RefusedError: the hub does not answer, or refuses.
    """
    spec, asked = program.spec, hub_id(program.model())
    if asked is None:
        return spec
    progress.report(f"asking the hub for {asked}", 0, None)
    found = await _run("find", asked, progress)
    refuse_directory(Path(found.directory), str(asked))
    if found.is_listed:
        _refuse_no_tokenizer(program, asked, found)
    if (note := hub_note(asked, found)) is not None:
        on_note(note)
    copy = HubId(asked.repo, found.commit).copy
    placed = program.with_settings([f'{PATH}="{copy}"'])
    if PATH in map(setting_of, spec.entry):
        return placed  # whoever chose the model chose this
    return msgspec.structs.replace(placed, set_in={**spec.set_in, PATH: "recipe"})


def _refuse_no_tokenizer(program: Program, asked: HubId, found: HubReport) -> None:
    lacking = lacking_tokenizer(found.files, asked if found.is_listed else found.directory)
    if program.needs_tokenizer() and lacking is not None:
        raise lacking


async def bring_hub_model(
    live: ClusterView,
    program: Program,
    infos: Sequence[NodeInfo],
    clock: Clock,
    progress: Progress = SILENT,
    *,
    is_fetched: bool = True,
) -> None:
    """Bring a hub model to the nodes of a job that lack it: from a node that has it, or else from
    this machine's cache, into which it is fetched.

    Args:
        infos: of the participants.
        is_fetched: from the hub, if neither a node nor the cache has it; else it is refused.

    Raises:
        RecipeError: it has no tokenizer, and needs one.
        RefusedError: it cannot be had, or a node has no room.
        NodeError: a node does not answer.
    """
    asked = hub_copy(program.model())
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
        if not is_fetched:
            await _refuse_fetching(asked, progress)
        found = await _run("fetch", asked, progress)
        _refuse_no_tokenizer(program, asked, found)
        with _folder_of(asked, found) as folder:
            await _push(asked, folder, None, lacking, clock, progress)


async def _refuse_fetching(asked: HubId, progress: Progress) -> None:
    """Raise RefusedError if any file of a model still has to be fetched."""
    found = await _run("find", asked, progress)
    if has_weights(found.files) and not lost_files(Path(found.directory), found.files):
        return
    raise RefusedError(
        f"{asked.repo} is on none of the nodes and not in this machine's cache, and the page "
        "cannot wait until it is fetched",
        kind=Kind.NO_FILE,
        fix="in a terminal: mntrain launch, with the job's id or file; it shows the progress",
    )


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
    """Return the nodes that answer, and whether each has the copy."""
    clients = [(info, live.client_at(info.node_id)) for info in infos]
    able = [(info, client) for info, client in clients if client is not None]
    has = await asyncio.gather(*(_has(client, asked) for _, client in able))
    seats = [FileSeat(info, FileCalls(client)) for info, client in able]
    return list(zip(seats, has, strict=True))


async def _has(client: AgentClient, asked: HubId) -> bool:
    """Whether a node has the whole copy: it gets its name only once it is complete."""
    question = MachineQuestion(paths=(AskedPath(use="model", path=str(asked.copy)),))
    facts = await client.machine_facts(question)
    return any(one.kind == "folder" and one.asked == str(asked.copy) for one in facts.paths)


async def _elsewhere(live: ClusterView, own: set[NodeId], asked: HubId) -> FileSeat | None:
    """Return another node that has the copy."""
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
    """Make a folder with links to the files that training needs. The cache may hold more of the
    same commit, and every copy has to be the same.
    """
    with tempfile.TemporaryDirectory(prefix="mntrain-") as made:
        folder = Path(made) / asked.copy.name
        folder.mkdir()
        for name in found.files:
            (folder / name).symlink_to((Path(found.directory) / name).resolve())
        yield folder


async def _run(what: str, asked: HubId, progress: Progress) -> HubReport:
    """Run the program that talks to the hub, and return what it found.

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
    why = "its helper process printed nothing"
    found = HubReport(trouble="other", said=why)
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
    if process.returncode:
        why = _death(process.returncode)
        found = msgspec.structs.replace(found, trouble="other", said=why)
    if found.trouble:
        raise hub_error(asked, found)
    return found


def _death(code: int) -> str:
    """Say how the program died. It reports every error that it survives, and exits with 0."""
    why = f"its helper process was killed by signal {-code}"
    if code == -signal.SIGKILL:
        why = "its helper process was killed, perhaps for lack of memory"
    elif code > 0:
        why = f"its helper process ended with exit code {code}"
    return why
