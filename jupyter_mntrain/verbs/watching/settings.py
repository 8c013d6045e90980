"""``settings``: lists the settings of a job, and where each came from."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.find import find_job, job_argument
from jupyter_mntrain.verbs.launching.recipe import changed_flag, settings_outcome
from jupyter_mntrain.verbs.verb import Outcome, Verb


class SettingsVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        changed_flag(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        return msgspec.structs.replace(settings_outcome(job.settings(), args), job=job)
