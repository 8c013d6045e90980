"""Job handle of a driver: reads a job's state, history and logs, changes it and ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec

from jupyter_mntrain.cluster.agents.client import ask_each
from jupyter_mntrain.cluster.chat import Chat
from jupyter_mntrain.cluster.history.follower import JournalFollower
from jupyter_mntrain.cluster.history.logs import (
    LogLine,
    LogReader,
    LogSearch,
    LogSource,
    merge,
    merged,
    placements_with,
    tail_log,
)
from jupyter_mntrain.cluster.history.zoom import Axis, read_zoom, zoomed
from jupyter_mntrain.cluster.launch.record_changes import (
    JobRemoval,
    SettingsChanged,
    ask_to_change,
    outcome_of,
    plan_removal,
    put_label,
    remove,
)
from jupyter_mntrain.cluster.session import DriverSession
from jupyter_mntrain.cluster.view.ended_jobs import whole_spec
from jupyter_mntrain.launch.progress import SILENT, Progress
from jupyter_mntrain.launch.project.tree import PART_BYTES, Tree, read_tree
from jupyter_mntrain.metrics.history import JobHistory
from jupyter_mntrain.metrics.series import JobSeries
from jupyter_mntrain.metrics.series_builder import POINTS, SeriesBuilder
from jupyter_mntrain.metrics.summary import JobSummary
from jupyter_mntrain.model.api import (
    STOP_GRACE_S,
    CheckpointAction,
    CheckpointChange,
)
from jupyter_mntrain.model.errors import MntrainError, SpecError, bad_argument, error_of
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.running_changes import MOST_SETTINGS, changes_of
from jupyter_mntrain.model.lifecycle.saves import requested_save
from jupyter_mntrain.model.records.checkpoint import RunCheckpoints, SavedStep
from jupyter_mntrain.model.records.job import (
    TERMINAL,
    JobSpec,
    JobState,
    JobView,
    Placement,
    RankStack,
    RunningChange,
)
from jupyter_mntrain.model.records.node import MachineDescription
from jupyter_mntrain.model.text.label import JobLabel
from jupyter_mntrain.model.text.serving_address import SERVER, address_in
from jupyter_mntrain.plan.spec_check import check_label

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.agents.client import AgentClient
    from jupyter_mntrain.cluster.history.comparison import ComparedJobs
    from jupyter_mntrain.cluster.launch.resume import ResumeOffer, ResumePlan
    from jupyter_mntrain.cluster.rank_session import RankSession
    from jupyter_mntrain.model.records.setting import Setting

WAITING = "waiting for the ranks to take it"


class Job:
    """A job of any driver, from :meth:`Cluster.launch` or :meth:`Cluster.job`. The job does not
    depend on this object, its process or its machine.

    Every method may be called from any thread.
    """

    def __init__(self, driver: DriverSession, job_id: JobId) -> None:
        self._driver = driver
        self._follower: JournalFollower | None = None
        self._metrics = SeriesBuilder(job_id, "driver")
        self._metrics_lock = threading.Lock()
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    @property
    def cluster(self) -> str:
        """Name of the cluster it runs in."""
        return self._driver.live.cluster

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call ``tell`` after every change, as :meth:`Cluster.subscribe` does."""
        return self._driver.live.changes.subscribe(tell)

    @property
    def state(self) -> JobState:
        """The combined state of all parts, from the live view."""
        return self.view().state

    def view(self) -> JobView:
        """Return the job as it is now, from the live view: contacts no node. The part of an
        unreachable node is ``unknown``.

        Raises:
            JobNotFoundError: every node has deleted it.
        """
        return self._driver.live.job(self.id)

    def watch(self) -> None:
        """Start reading the ranks' samples. Idempotent; returns at once."""
        self._follower = self._driver.loop.run(self._driver.follow(self.id))

    def unwatch(self) -> None:
        """Free the history's memory. Watching again reads it again."""
        self._follower = None
        self._driver.loop.run(self._driver.unfollow(self.id))

    def history(self) -> JobHistory:
        """Return the history read so far: the newest steps, and blocks of earlier ones. Starts
        watching.

        Cheap at any length: old steps are not copied. The first call returns before much has
        arrived; ``is_complete`` tells when an ended job has been read to its end.
        """
        if self._follower is None or self._follower.is_behind:
            self.watch()
        assert self._follower is not None  # noqa: S101  # watch() has just set it
        return self._follower.snapshot()

    def wait_for_history(self, timeout_s: float | None = None) -> JobHistory:
        """Return the history once it is complete, or as it is after ``timeout_s`` seconds."""
        self._driver.live.changes.wait_until(lambda: self.history().is_complete, timeout_s)
        return self.history()

    def catch_up(
        self, timeout_s: float | None = None, *, progress: Progress = SILENT
    ) -> JobHistory:
        """Return the history up to the last step that the nodes have reported, or as it is after
        ``timeout_s`` seconds.

        Args:
            progress: receives the number of steps read, of all ranks.
        """

        def is_caught_up() -> bool:
            history = self.history()
            if not history.is_caught_up:
                steps = sum(series.count for series in history.ranks.values())
                progress.report("reading the job's history, steps", steps, None)
            return history.is_caught_up

        self._driver.live.changes.wait_until(is_caught_up, timeout_s)
        return self.history()

    def summary(self) -> JobSummary:
        """Return the job's figures, from what has been read so far. Starts watching."""
        with self._metrics_lock:
            self._metrics.extend(self.history(), self._driver.clock.time())
            return self._metrics.summary

    def series(self, points: int = POINTS) -> JobSeries:
        """Return the figures over time, downsampled to ``points`` rows, with the summary."""
        with self._metrics_lock:
            self._metrics.extend(self.history(), self._driver.clock.time())
            return self._metrics.whole(points)

    def compare(self, *others: Job, timeout_s: float = 30.0) -> ComparedJobs:
        """Compare the :meth:`summary` of this job with others', and list the settings that differ.
        Reads each history up to the last reported step, for at most ``timeout_s`` seconds.

        Raises:
            NodeError: no node that has one of the jobs answers.
        """
        for other in others:
            if not isinstance(other, Job):
                raise bad_argument("others", other, "jobs, as Cluster.job(id) returns them")
        jobs = (self, *others)
        for job in jobs:
            job.catch_up(timeout_s)
        from jupyter_mntrain.cluster.history.comparison import compare_jobs

        return compare_jobs(jobs)

    def zoom(self, begin: int, end: int, points: int = POINTS, *, by: Axis = "step") -> JobSeries:
        """Ask the nodes for the figures of a range: single steps where it is narrow.

        Args:
            begin: first step, or Unix time; ``end`` is the last one.
            points: rows, at most.

        Raises:
            NodeError: no node answered.
        """
        live, view = self._driver.live, self.view()
        parts = read_zoom(view, live.client_of, begin=begin, end=end, points=points, by=by)
        found = self._driver.loop.run(parts)
        return zoomed(found, view, self.summary(), points, self._driver.clock.time())

    def wait(self, timeout_s: float | None = None, *, progress: Progress = SILENT) -> JobView:
        """Wait until every part has ended, or for ``timeout_s`` seconds. Returns the view.

        A part whose node does not answer has not ended. Ctrl-C stops the waiting, never the job.

        Args:
            progress: receives the number of ended parts.
        """

        def has_ended() -> bool:
            view = self.view()
            ended = sum(part.state in TERMINAL for part in view.parts)
            held = [part.awaited for part in view.parts if part.awaited]
            what = "; ".join([f"waiting for the end of {self.id}", *held])
            progress.report(what, ended, len(view.parts))
            return view.state in TERMINAL

        self._driver.live.changes.wait_until(has_ended, timeout_s)
        return self.view()

    def wait_for_save(
        self, before: JobView, timeout_s: float | None = None, *, progress: Progress = SILENT
    ) -> SavedStep | None:
        """Wait for the checkpoint that :meth:`save` asked for, not one that is saved meanwhile.

        Returns it, or with its problem one that failed; ``None`` if neither is there within
        ``timeout_s`` seconds, or the attempt ends before.

        Args:
            before: the job when it was asked.
        """
        what = f"waiting for the checkpoint of {self.id}"
        progress.report(what, 0, 1)

        def is_answered() -> bool:
            now = self.view()
            is_over = now.state in TERMINAL or now.attempt.number != before.attempt.number
            return is_over or requested_save(now, before) is not None

        self._driver.live.changes.wait_until(is_answered, timeout_s)
        progress.report(what, 1, 1)
        now = self.view()
        return requested_save(now, before) if now.attempt.number == before.attempt.number else None

    def stacks(
        self, *, rank: int | None = None
    ) -> Mapping[str, Sequence[RankStack] | MntrainError]:
        """Return the stacks of every live rank, by node, or the error of a node that does not
        answer.

        Ranks that use a Recorder report the stacks of all their threads and continue; of other
        ranks only the kernel's state is known. Takes up to two seconds.

        Args:
            rank: only this global rank, and only its node is asked.

        Raises:
            SpecError: the job has no such rank.
        """
        placements = placements_with(self.view(), rank)
        live = self._driver.live
        found = self._driver.loop.run(
            ask_each(placements, lambda place: live.client_of(place).stacks(self.id))
        )
        return {
            place.node: said
            if isinstance(said, MntrainError)
            else [stack for stack in said if rank in (None, stack.rank)]
            for place, said in zip(placements, found, strict=True)
        }

    def describe_machines(self) -> Mapping[str, MachineDescription | MntrainError]:
        """Return the packages and GPUs of every participant, by node, or the error of a node that
        does not answer. Takes seconds.
        """
        live, placements = self._driver.live, self.view().attempt.placements
        found = self._driver.loop.run(
            ask_each(placements, lambda place: live.client_of(place).description())
        )
        return {place.node: said for place, said in zip(placements, found, strict=True)}

    def stop(
        self,
        *,
        reason: str = "stopped by user",
        grace_s: float = STOP_GRACE_S,
        progress: Progress = SILENT,
    ) -> JobView:
        """End the job on every node. Returns once every reachable node has accepted the request.

        Args:
            grace_s: seconds that the ranks get to end before they are killed.

        Raises:
            NodeError: no node answered.
        """
        launcher = self._driver.launcher()
        return self._driver.loop.run(
            launcher.stop(self.id, reason=reason, grace_s=grace_s, progress=progress)
        )

    def save(self, *, is_last: bool = False, reason: str = "stopped after saving") -> JobView:
        """Ask all ranks to save a checkpoint after their current step. Does not wait for it.

        Args:
            is_last: end the job after it, as canceled.

        Raises:
            NodeError: the head does not answer.
            RefusedError: the job has ended, or its ranks do not save on request.
        """
        launcher = self._driver.launcher()
        return self._driver.loop.run(launcher.save(self.id, is_last=is_last, reason=reason))

    def checkpoints(self) -> RunCheckpoints:
        """List the checkpoints of its run on the nodes that answer."""
        from jupyter_mntrain.cluster.launch.resume import checkpoints_of_job

        return self._driver.loop.run(checkpoints_of_job(self._driver.live, self.view()))

    def plan_resume(
        self, spec: JobSpec | None = None, *, begin: int | str | None = None
    ) -> ResumePlan:
        """Return what :meth:`Cluster.resume` would start; raises the same errors, but starts
        nothing.
        """
        from jupyter_mntrain.cluster.launch.resume import plan_resume

        return self._driver.loop.run(plan_resume(self._driver.live, self.id, spec, begin))

    def resume_offer(self) -> ResumeOffer:
        """Return what :meth:`Cluster.resume` would continue from, or why it cannot.
        Starts nothing.
        """
        from jupyter_mntrain.cluster.launch.resume import offer_resume

        return self._driver.loop.run(offer_resume(self._driver.live, self.id))

    def change_checkpoint(self, step: int, action: CheckpointAction) -> RunCheckpoints:
        """Delete a checkpoint of its run on all nodes, or pin it so that it is never pruned.

        Raises:
            RefusedError: there is none of that step; it is pinned; or the run needs it.
        """
        self._driver.refuse_read_only()
        live = self._driver.live
        change = CheckpointChange(step=step, action=action)
        from jupyter_mntrain.cluster.launch.resume import change_checkpoints

        return self._driver.loop.run(change_checkpoints(live, self.view(), change))

    def kill(self, *, progress: Progress = SILENT) -> JobView:
        """Kill every process of the job at once; otherwise like :meth:`stop`."""
        return self.stop(reason="killed by user", grace_s=0.0, progress=progress)

    @contextmanager
    def ending_with_driver(self) -> Iterator[None]:
        """Kill the job if the block raises, Ctrl-C interrupts it, or this process dies."""
        addresses = [address for address, _ in self._driver.addresses]
        with guarded(self.id, self.cluster, addresses):
            try:
                yield
            except BaseException:  # Ctrl-C, too
                with suppress(MntrainError):
                    self.kill()
                raise

    def kill_rank(self, rank: int) -> JobView:
        """Kill the process of one global rank, as if it had died by itself.

        Raises:
            SpecError: the job has no such rank.
            NodeError: its node does not answer.
            RefusedError: it is not running.
        """
        placements_with(self.view(), rank)
        launcher = self._driver.launcher()
        return self._driver.loop.run(
            launcher.kill_rank(self.id, rank, reason="killed by user (kill --rank)")
        )

    def logs(
        self, *, rank: int | None = None, node: str | None = None, tail: int = 200
    ) -> tuple[LogLine, ...]:
        """Return the last lines of all nodes together, in order of time.

        A node that does not answer adds one line at the end that says so.

        Args:
            rank: only lines of this global rank.
            node: only this node, by name or id.
            tail: number of lines.

        Raises:
            SpecError: the job has no such rank or node, or ``tail`` is negative.
        """
        if tail < 0:
            raise bad_argument("tail", tail, "a number of lines, 0 or more")
        sources = self._sources(rank, node)
        return self._driver.loop.run(_last_lines(sources, rank, tail))

    def whole_log(
        self, *, rank: int | None = None, node: str | None = None
    ) -> Generator[list[LogLine], None, None]:
        """Yield all lines that the nodes have stored, in order of time, in pieces of any length.

        A node that does not answer, or no longer, adds one line that says so.

        Raises:
            SpecError: the job has no such rank or node.
        """
        readers = [LogReader(source, rank=rank) for source in self._sources(rank, node)]
        pieces = merged([reader.pieces_or_trouble() for reader in readers])
        return self._driver.loop.iterate(pieces)

    def log_search(
        self, text: str, *, rank: int | None = None, node: str | None = None, most: int
    ) -> LogSearch:
        """Return a search for the newest lines that contain a text, in all stored logs.

        Raises:
            SpecError: the job has no such rank or node.
        """
        return LogSearch(self._sources(rank, node), text, rank=rank, most=most)

    def search_log(self, search: LogSearch) -> list[LogLine]:
        """Run or continue a search of :meth:`log_search`."""
        return self._driver.loop.run(search.find())

    def settings(self) -> tuple[Setting, ...]:
        """Return every setting of the job as it is in effect, with its origin: default, recipe,
        panel, ``--set``, an option of the launch, or chosen by mntrain (``auto``). Asks its nodes.

        Raises:
            NodeError: none of them answers.
        """
        from jupyter_mntrain.launch.settings import settings_of_job

        return settings_of_job(self.spec(), self.view().run)

    def spec(self) -> JobSpec:
        """Return the job's spec with all files, which :meth:`view` omits. Asks its nodes.

        Raises:
            NodeError: none of them answers.
        """
        return self._driver.loop.run(whole_spec(self._driver.live, self.view()))

    def project(self) -> Tree | None:
        """Return the files of its project, by their hashes; ``None`` without one. Asks its head.

        Raises:
            NodeError: it does not answer.
            RefusedError: it has deleted them.
        """
        sha256, client = self.view().spec.project, self._driver.live.client_of
        if sha256 is None:
            return None
        head = client(self.view().attempt.head)
        return self._driver.loop.run(_whole_tree(head, sha256))

    def set(
        self,
        settings: Sequence[str],
        *,
        timeout_s: float | None = None,
        progress: Progress = SILENT,
    ) -> SettingsChanged:
        """Change settings of the running job. All ranks apply them after the same step; restarts
        and resumed jobs keep them. Returns once they are applied, or after ``timeout_s`` seconds.

        Args:
            settings: like ``["train.steps=5000", "optimizer.learning_rate=1e-4"]``; what may be
                changed is in docs/recipe_checkpoints.md.

        Raises:
            SpecError: the job runs a script, or a setting does not change while it runs.
            RecipeError: a field or value is wrong, or does not go with the others.
            RefusedError: the job has ended, does not run yet, or has gone on too far meanwhile; or
                this driver is read-only.
            NodeError: the head does not answer.
        """
        given = _checked(settings)
        launcher, live, view = self._driver.launcher(), self._driver.live, self.view()
        asking = ask_to_change(live, view, given, launcher.submitted_by)
        plan = self._driver.loop.run(asking)
        progress.report(WAITING, 0, 1)

        def taken() -> RunningChange | None:
            changes = changes_of(self.view())
            return next((one for one in changes if one.key == plan.request.key), None)

        def is_over() -> bool:
            now = self.view()
            return now.state in TERMINAL or now.attempt.number != plan.request.attempt

        live.changes.wait_until(lambda: taken() is not None or is_over(), timeout_s)
        progress.report(WAITING, 1, 1)
        change = taken()
        if change is not None and change.refused is not None:
            raise error_of(change.refused)
        return outcome_of(plan, change)

    def chat(self) -> Chat:
        """Open a chat with the model of a job that ``mntrain chat`` has started.

        Raises:
            RefusedError: this driver is read-only.
        """
        self._driver.refuse_read_only()
        return Chat(self._driver, self.id, self.view)

    def session(self) -> RankSession:
        """Return the ranks of a session, which run cells.

        Raises:
            RefusedError: this driver is read-only, or the job is no session.
        """
        from jupyter_mntrain.cluster.rank_session import RankSession

        self._driver.refuse_read_only()
        return RankSession(self._driver, self.id, self.view)

    def serving_url(self, timeout_s: float | None = None) -> str | None:
        """The URL at which a job of ``mntrain serve`` answers OpenAI clients, once it does.

        Of 127.0.0.1, only programs on its node reach it.

        Returns:
            ``None`` if it has ended, serves nothing, or still loads after ``timeout_s`` seconds.
        """
        if self.view().spec.entry[:2] != ("-m", SERVER):
            return None

        def has_ended() -> bool:
            return self.view().state in TERMINAL

        changes = self._driver.live.changes
        changes.wait_until(lambda: has_ended() or self._told_url() is not None, timeout_s)
        return None if has_ended() else self._told_url()

    def rename(self, name: str) -> tuple[str, ...]:
        """Rename the job on every node that has it; an empty name restores the first one.

        Returns:
            names of participants that do not answer: repeat it once they do.

        Raises:
            SpecError: the name is too long, or cannot be shown.
            NodeError: no node answers.
        """
        return self._put_label(name=name)

    def note(self, text: str) -> tuple[str, ...]:
        """Attach a note to the job; an empty one removes it. Otherwise like :meth:`rename`."""
        return self._put_label(note=text)

    def plan_removal(self) -> JobRemoval:
        """Return what :meth:`remove` would delete. Asks its nodes, and deletes nothing.

        Raises:
            RefusedError: the job has not ended.
            NodeError: no node answers.
        """
        return self._driver.loop.run(plan_removal(self._driver.live, self.view()))

    def remove(self, *, with_checkpoints: bool = False) -> JobRemoval:
        """Delete the job's record, samples and logs on every node that answers.

        Args:
            with_checkpoints: also those of its run, in the nodes' own directories, on each node
                where it is the last job of the run. Otherwise they stay.

        Raises:
            RefusedError: the job has not ended, or this driver is read-only.
            NodeError: no node answers.
        """
        self._driver.refuse_read_only()
        live = self._driver.live
        return self._driver.loop.run(remove(live, self.view(), with_checkpoints=with_checkpoints))

    def _sources(self, rank: int | None, node: str | None) -> list[LogSource]:
        return [self._source(placement) for placement in placements_with(self.view(), rank, node)]

    def _source(self, placement: Placement) -> LogSource:
        client = self._driver.live.client_of(placement)
        return LogSource(
            node=placement.node,
            read=lambda offset, limit: client.log(self.id, offset, limit),
            times=lambda begin, end: client.log_times(self.id, begin, end),
        )

    def _told_url(self) -> str | None:
        head = self.view().attempt.head
        told = [one.progress.what for one in self.summary().ranks if one.progress is not None]
        found = (address_in(what, head.address) for what in told)
        return next((one for one in found if one is not None), None)

    def _put_label(self, **change: str) -> tuple[str, ...]:
        self._driver.refuse_read_only()
        view, now_s = self.view(), self._driver.clock.time()
        # Newer than any it replaces, also if another driver's clock is ahead.
        time_s = max(now_s, view.label.time_s + 1e-3)
        label: JobLabel = msgspec.structs.replace(view.label, time_s=time_s, **change)
        check_label(label)
        return self._driver.loop.run(put_label(self._driver.live, view, label))


async def _last_lines(
    sources: Sequence[LogSource], rank: int | None, tail: int
) -> tuple[LogLine, ...]:
    found = await ask_each(sources, lambda source: tail_log(source, rank=rank, tail=tail))
    lines = merge([one for one in found if not isinstance(one, MntrainError)])
    troubles = [
        LogReader(source).trouble(one)
        for source, one in zip(sources, found, strict=True)
        if isinstance(one, MntrainError)
    ]
    return (*lines[len(lines) - min(tail, len(lines)) :], *troubles)


def _checked(settings: Sequence[str]) -> tuple[str, ...]:
    """Return the settings as a tuple; raises SpecError if they are not a list or it is empty."""
    is_list = not isinstance(settings, str) and all(isinstance(one, str) for one in settings)
    if not is_list or len(settings) > MOST_SETTINGS:
        raise bad_argument("settings", settings, 'a list like ["train.steps=5000"]')
    if not settings:
        raise SpecError("no setting was given", fix="give one, like train.steps=5000")
    return tuple(settings)


async def _whole_tree(client: AgentClient, sha256: str) -> Tree:
    content = b""
    while part := await client.blob(sha256, offset=len(content), limit=PART_BYTES):
        content += part
    return read_tree(content)


_WAIT: Final = 'read -r over || exec "$@"'
"""A shell's program: costs nothing as long as the pipe that it reads has a writer."""


@contextmanager
def guarded(job_id: JobId, cluster: str, addresses: Sequence[str]) -> Iterator[None]:
    """Have a process in a session of its own kill the job if this process dies in the block.

    Where none can be started, nothing guards it.
    """
    agents = [word for address in addresses for word in ("--agent", address)]
    program = (sys.executable, "-P", "-m", "jupyter_mntrain.cli", "--cluster", cluster, *agents)
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "mntrain", *program, "kill", job_id],
            cwd=os.sep,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            process.communicate(b"over\n")
