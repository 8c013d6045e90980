"""``export``: writes a job to a file that can be stored, shared and launched again."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from pathlib import Path

from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.launch.spec_file import secret_names, write_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.plan.software.versions import unacknowledged
from jupyter_mntrain.show.safe_console import verbatim
from jupyter_mntrain.verbs.launching.foreign_job import remember_job_file
from jupyter_mntrain.verbs.new_file import force_flag, output_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument

OWNER_ONLY = 0o600
ALL_MAY_READ = 0o666
"""File mode, before the umask."""


class ExportVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        output_option(parser, help="where to write it; default: print it")
        parser.add_argument(
            "file",
            nargs="?",
            type=parser.outdated_value("FILE after JOB is now --output FILE"),
            help=SUPPRESS,
        )
        force_flag(parser)
        parser.flag(
            "--with-secrets",
            help="also write the values of variables and arguments that look like secrets",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        if args.output and args.file:
            raise SpecError("--output and FILE mean the same", fix="leave FILE out")
        name = args.output or args.file
        job = find_job(context, args)
        view = job.view()
        spec = job.spec()
        secrets = secret_names(spec)
        left_out = () if args.with_secrets else secrets
        text = write_spec(
            unacknowledged(spec),
            job_id=job.id,
            submitted_s=view.attempt.submitted_s,
            with_secrets=args.with_secrets,
        )
        remember_job_file(text)
        data = {"job_id": job.id, "file": name, "left_out": list(left_out), "text": text}
        if name is None:
            return Outcome(verbatim(text), data, job=job)
        mode = OWNER_ONLY if secrets and args.with_secrets else ALL_MAY_READ
        path = context.directory / in_home(name)
        _write(path, name, text, mode, may_replace=args.force)
        said = Text.assemble(
            (job.id, "bold"),
            f" written to {name}; launch it again: {context.program} launch {name}",
        )
        if left_out:
            said.append(
                f"\n⚠ their values are left out, since they are or look like secrets: "
                f"{', '.join(left_out)}",
                "yellow",
            )
            said.append(
                "\n  a launch takes them from its own environment; or export --with-secrets", "dim"
            )
        return Outcome(said, data, job=job)


def _write(path: Path, shown: str, text: str, mode: int, *, may_replace: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if may_replace else os.O_EXCL)
    try:
        with open(os.open(path, flags, mode), "wb") as file:  # noqa: PTH123  # mode from the start
            if mode == OWNER_ONLY:
                os.fchmod(file.fileno(), mode)  # an existing file would keep its mode
            file.write(text.encode())
    except FileExistsError:
        raise SpecError(
            f"{shown}: already exists", fix="choose another name, or overwrite it with --force"
        ) from None
    except OSError as error:
        raise SpecError(
            f"{shown}: cannot be written: {error.strerror}", fix="choose another place"
        ) from None
