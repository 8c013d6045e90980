"""``tensorboard``: writes a job's numbers as TensorBoard's event files, and opens TensorBoard."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.records.job import TERMINAL
from jupyter_mntrain.show.exports.event_files import EventFiles, is_installed
from jupyter_mntrain.verbs.new_file import new_place, output_option
from jupyter_mntrain.verbs.verb import (
    Context,
    Outcome,
    Verb,
    caught_up_history,
    find_job,
    named_job,
)

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

FOLDER = "mntrain-tensorboard"
POINTS = 10000
"""Rows of each series that `tensorboard` writes."""
WRITE_EVERY_S = 5.0
"""Interval at which `tensorboard` writes what running jobs have reported."""
PORT = 6006
"""TensorBoard's own default."""


class TensorBoardVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        parser.argument(
            "jobs",
            nargs="*",
            metavar="JOB",
            completes="job",
            help="ids, or how they begin; default: the newest",
        )
        told = f"where to write the event files; default: {FOLDER}"
        output_option(parser, metavar="DIR", help=told)
        parser.renamed("--out", to="--output")
        parser.option(
            "--port",
            type=bounded_int(1, 65535),
            default=PORT,
            metavar="PORT",
            help=f"TensorBoard's port; default: {PORT}",
        )
        parser.flag("--no-server", help="only write the event files")

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not is_installed():
            raise SpecError(
                "tensorboard is not installed in this environment", fix="pip install tensorboard"
            )
        directory = new_place(context.directory, args.output or FOLDER)
        jobs = _jobs(context, args)
        files = []
        for job in jobs:
            caught_up_history(context, job)
            files.append(EventFiles(directory, job.series(POINTS)))
        written = _write(jobs, files)
        folders = [str(one.directory) for one in files]
        data = {"job_ids": [job.id for job in jobs], "paths": folders, "numbers": written}
        serves = not (args.no_server or args.json or context.screen.in_background)
        if serves:
            context.screen.say(_said(written, directory))
            _serve(jobs, files, directory, args.port)
        for one in files:
            one.close()
        if serves:
            return Outcome(data=data)
        hint = _hint(context, args.output or FOLDER)
        return Outcome(Text.assemble(_said(written, directory), "\n", hint), data)


def _jobs(context: Context, args: Namespace) -> list[Job]:
    named = {job.id: job for job in (named_job(context, args, text) for text in args.jobs)}
    return list(named.values()) or [find_job(context, Namespace(**vars(args), job=None))]


def _write(jobs: Sequence[Job], files: Sequence[EventFiles]) -> int:
    return sum(one.write(job.series(POINTS)) for job, one in zip(jobs, files, strict=True))


def _said(written: int, directory: Path) -> Text:
    return Text(f"{written:,} numbers written to {directory}")


def _hint(context: Context, out: str) -> Text:
    """Return the command that opens what was written."""
    if context.screen.in_background:
        return Text(f"To open it here: %load_ext tensorboard, then %tensorboard --logdir {out}")
    return Text(f"To open it: tensorboard --logdir {out}")


def _serve(jobs: Sequence[Job], files: Sequence[EventFiles], directory: Path, port: int) -> None:
    """Run TensorBoard until it ends or is interrupted; meanwhile write what running jobs report.

    Raises:
        SpecError: it ended with an error; what it printed is on the screen.
    """
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory)]
    command += ["--port", str(port)]
    server = subprocess.Popen(command)
    try:
        while server.poll() is None:
            if any(job.state not in TERMINAL for job in jobs):
                _write(jobs, files)
            try:
                server.wait(WRITE_EVERY_S)
            except subprocess.TimeoutExpired:
                continue
    except KeyboardInterrupt:
        return
    finally:
        server.terminate()
        server.wait()
    if server.returncode > 0:
        cause = f"TensorBoard ended with exit code {server.returncode}"
        raise SpecError(cause, fix="read what it printed above; for another port pass --port")
