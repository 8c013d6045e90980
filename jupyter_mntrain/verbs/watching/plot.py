"""``plot``: draws the picture of a job."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.new_file import force_flag, output_option
from jupyter_mntrain.verbs.verb import (
    Context,
    Outcome,
    Verb,
    caught_up_history,
    find_job,
    job_argument,
)
from jupyter_mntrain.verbs.watching.picture_file import picture_path, write_picture

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job

THEMES = ("auto", "light", "dark")


class PlotVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        output_option(parser, metavar="FILE.png", help="write the picture to this file")
        parser.renamed("--out", to="--output")
        force_flag(parser)
        parser.option(
            "--theme",
            choices=THEMES,
            default="auto",
            help="colors; auto is transparent and suits both",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if not args.output and not context.screen.in_background:
            raise SpecError("plot: a terminal shows no pictures", fix="pass a file: -o FILE.png")
        path = None
        if args.output:
            path = picture_path(context, args.output, may_replace=args.force)
        job = find_job(context, args)
        png = _draw(context, job, args.theme)
        words = f"{job.id}: {context.program} status has the numbers"
        data = {"job_id": job.id, "size_bytes": len(png), "file": str(path) if path else None}
        if path is None:
            return Outcome(data=data, job=job, picture=png, picture_text=words)
        write_picture(path, png)
        return Outcome(
            Text(f"wrote {path}"),
            data,
            job=job,
            picture=png if context.screen.shows_pictures else None,
            picture_text=words,
        )


def _draw(context: Context, job: Job, theme: str) -> bytes:
    from jupyter_mntrain.show.picture import Picture  # matplotlib takes half a second

    history = caught_up_history(context, job)
    picture = Picture(program=context.program, theme=theme)
    return picture.draw(job.series(), history.view, now_s=context.clock())
