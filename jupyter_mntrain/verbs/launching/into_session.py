"""``launch --session``: starts a job on the nodes of a session, with what is imported there."""

from __future__ import annotations

from argparse import Namespace

import msgspec

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.records.job import TERMINAL, JobSpec, JobView, Participant
from jupyter_mntrain.verbs.verb import Context, all_jobs, named_job

AUTO = "auto"


def into_session_option(parser: Parser) -> None:
    parser.option(
        "--session",
        metavar="JOB|auto",
        completes="job",
        help="start on the ranks' nodes and GPUs of a session, in about a second, with its "
        "interpreter and variables: torch is imported there already; auto: of the newest, if one "
        "runs",
    )


def into_session(context: Context, args: Namespace, before: JobSpec) -> JobSpec:
    """Return a stored spec, or an empty one, with what the chosen session decides.

    Raises:
        SpecError: the options contradict it.
        RefusedError: it is over.
    """
    named = getattr(args, "session", None)
    if not named:
        return before
    view = _newest(context, args) if named == AUTO else _named(context, args, named)
    if view is None:
        return before
    session = view.spec
    places = view.attempt.placements
    return msgspec.structs.replace(
        before,
        participants=tuple(
            Participant(
                node=one.node,
                nproc=one.nproc,
                gpus=one.gpus,
                interface=one.interface,
                shares_gpus=bool(one.gpus),
            )
            for one in places
        ),
        python=session.python,
        environment=session.environment | before.environment,
        from_environment=tuple(
            dict.fromkeys((*session.from_environment, *before.from_environment))
        ),
        session=view.job_id,
    )


def _newest(context: Context, args: Namespace) -> JobView | None:
    """Return the newest session that fits the options; ``None`` if none does."""
    if args.member or args.on:
        return None
    running = (one for one in all_jobs(context, args) if one.runs_cells and one.attempt.placements)
    return next((one for one in running if args.python in (None, one.spec.python)), None)


def _named(context: Context, args: Namespace, named: str) -> JobView:
    view = named_job(context, args, named).view()
    if not view.spec.is_session:
        raise SpecError(f"job {view.job_id} is no session", fix="start one: mntrain session start")
    if view.state in TERMINAL:
        raise RefusedError(
            f"the session {view.job_id} is over: it is {view.state}",
            fix=f"start it again: mntrain session restart {view.job_id}",
        )
    if not view.attempt.placements:
        raise RefusedError(
            f"the session {view.job_id} has no nodes yet: it is {view.state}",
            fix=f"wait until it runs: mntrain status {view.job_id}",
        )
    options = {"--member": args.member, "--head": args.head, "--on": args.on}
    options["--python"] = args.python if args.python != view.spec.python else None
    for option, value in options.items():
        if value:
            raise SpecError(
                f"--session and {option} cannot be used together: the session has its own",
                fix=f"omit one, or start a session with {option}",
            )
    return view
