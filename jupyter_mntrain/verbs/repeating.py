"""A job again: from a job file, or as a job of the cluster was launched."""

from __future__ import annotations

import re
import tomllib
from argparse import Namespace
from pathlib import Path

import msgspec

from jupyter_mntrain.launch.spec_file import KEY, read_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.job import JobSpec
from jupyter_mntrain.verbs.context import Context
from jupyter_mntrain.verbs.workload import TRAINER, Workload, read_files

JOB_ID = re.compile(r"j-[0-9a-f]{1,8}")


def repeated(context: Context, args: Namespace) -> Workload | None:
    """What ``args.target`` launches again; ``None`` if it is a recipe or a script.

    A file wins over a job of the same name.

    Raises:
        SpecError: the job file is damaged, or options do not fit it.
        JobNotFoundError: no reachable node knows such a job.
    """
    if not args.target or context.cell is not None:
        return None
    path = context.directory / Path(args.target).expanduser()
    if path.is_file():
        if not is_job_file(path):
            return None
        spec, took = read_spec(path.read_text(encoding="utf-8")), f"job file {path.name}"
    elif JOB_ID.fullmatch(args.target):
        job = context.cluster(args).job(args.target)
        spec, took = job.view().spec, f"as {job.id} was"
    else:
        return None
    if context.arguments:
        raise SpecError(
            f"{context.arguments[0]!r} stands after --, but the job's own arguments are kept",
            fix="launch the script itself with other arguments",
        )
    extra = read_files([context.directory / one for one in args.file])
    return Workload(
        entry=(*spec.entry, *_overrides(spec, args)),
        files={**spec.files, **extra},
        name=spec.name,
        took=took,
        spec=spec,
    )


def is_job_file(path: Path) -> bool:
    """Whether it has a job file's own key, whatever else is wrong with it."""
    if path.suffix != ".toml":
        return False
    try:
        return KEY in tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError):
        return False  # it is read as a recipe, which says what is wrong


def with_options(spec: JobSpec, args: Namespace) -> JobSpec:
    """What is given besides wins over what the job had."""
    return msgspec.structs.replace(
        spec,
        name=args.name or spec.name,
        environment={**spec.environment, **dict(args.env)},
        torchrun_arguments=tuple(args.torchrun) or spec.torchrun_arguments,
        port=args.port or spec.port,
        link_capacity_bytes_per_s=args.link_capacity or spec.link_capacity_bytes_per_s,
    )


def _overrides(spec: JobSpec, args: Namespace) -> list[str]:
    if args.set and spec.entry[:2] != ("-m", TRAINER):
        raise SpecError(
            f"--set {args.set[0]}: that job runs a script and has no recipe fields",
            fix="leave --set out",
        )
    return [word for one in args.set for word in ("--set", one)]
