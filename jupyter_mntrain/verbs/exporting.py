"""``export``: a job as a file, to be launched again here or anywhere."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.text import Text

from jupyter_mntrain.launch.spec_file import secrets_of, write_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.parser import Parser
from jupyter_mntrain.verbs.reach import find_job
from jupyter_mntrain.verbs.verb import Outcome, Verb


class Export(Verb):
    name = "export"
    help = "a job as a file (TOML) that launches it again, here or elsewhere"

    def add_arguments(self, parser: Parser) -> None:
        parser.argument("job", metavar="JOB", completes="job", help="its id or the beginning of it")
        parser.argument(
            "file",
            nargs="?",
            metavar="FILE",
            completes="file",
            help="where to write it; none = only shown",
        )
        parser.option("--force", action="store_true", help="replace FILE if it is there")
        parser.option(
            "--with-secrets",
            action="store_true",
            help="with variables whose names look like secrets (TOKEN, KEY, PASSWORD, SECRET)",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        path = context.directory / Path(args.file).expanduser() if args.file else None
        if path is not None and path.exists() and not args.force:
            raise SpecError(f"{args.file} is there already", fix="name another, or add --force")
        job = find_job(context, args)
        spec = job.view().spec
        exported = datetime.fromtimestamp(context.clock(), UTC)
        header = (
            f"{spec.name}, as launched as job {job.id}; exported {exported:%Y-%m-%d %H:%M} UTC.\n"
            "Launch it again: mntrain launch THIS_FILE (options given besides win over it)"
        )
        text = write_spec(spec, header, with_secrets=args.with_secrets)
        left_out = () if args.with_secrets else secrets_of(spec)
        data = {
            "job_id": job.id,
            "file": str(path) if path else None,
            "left_out": list(left_out),
            "spec": msgspec.to_builtins(spec) if args.with_secrets else None,
            "text": text,
        }
        shown = Text(text if path is None else f"{job.id} is in {args.file}", overflow="fold")
        if left_out:
            shown.append(
                f"\n⚠ without {', '.join(left_out)}: set them where it is launched, or export "
                "--with-secrets",
                style="yellow",
            )
        if path is not None:
            _write(path, text)
        return Outcome(shown, data)


def _write(path: Path, text: str) -> None:
    try:
        # As bytes: line ends stay as they are.
        path.write_bytes(text.encode())
    except OSError as error:
        raise SpecError(
            f"{path}: cannot be written: {error.strerror}", fix="name another place"
        ) from None
