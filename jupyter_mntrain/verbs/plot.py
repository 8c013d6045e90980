"""``plot``: the picture of a job, now, into a file or under the cell."""

from __future__ import annotations

import argparse
from pathlib import Path

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.jobs import HISTORY_PATIENCE_S, _OneJob
from jupyter_mntrain.verbs.verb import Context, Outcome


class Plot(_OneJob):
    name = "plot"
    help = "throughput, MFU, link utilisation, computing share and loss as a picture"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("-o", "--output", metavar="FILE.png", help="where to write it")

    def run(self, context: Context, arguments: argparse.Namespace) -> Outcome:
        from jupyter_mntrain.show import draw_png

        job = self.job(context, arguments)
        job.wait_for_history(HISTORY_PATIENCE_S)
        target = context.directory / Path(arguments.output or f"{job.id}.png").expanduser()
        if target.suffix != ".png":
            raise SpecError(f"{target.name} is not a .png", fix="name the file FILE.png")
        try:
            target.write_bytes(draw_png(job.history(), job.summary(), opaque=True))
        except OSError as error:
            raise SpecError(
                f"{target} cannot be written: {error.strerror}", fix="choose another place"
            ) from None
        return Outcome(data={"job_id": job.id, "path": str(target)}, view=f"wrote {target}")
