"""``serve``: an OpenAI-compatible server of a job's newest checkpoint or a model directory."""

from __future__ import annotations

import ipaddress
from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import RefusedError, SpecError, error_of
from jupyter_mntrain.model.text.serving_address import NO_TEMPLATE, SERVER
from jupyter_mntrain.verbs.launching.answering.model_source import (
    add_model_arguments,
    answering_spec,
)
from jupyter_mntrain.verbs.launching.launch import submitter
from jupyter_mntrain.verbs.variables import refuse_variable, variable_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Job, Progress

LOOPBACK = "127.0.0.1"
WHAT = "serve"


class ServeVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        add_model_arguments(parser)
        parser.option(
            "--listen",
            default=LOOPBACK,
            metavar="IP",
            help="listen on this address of the node: anyone who can reach it can use the model, "
            f"without a password; default: {LOOPBACK}, for programs on the node",
        )
        parser.option(
            "--port",
            type=bounded_int(1, LAST_PORT),
            default=0,
            metavar="PORT",
            help="default: any free one",
        )
        parser.renamed("--address", to="--listen")
        variable_option(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        refuse_variable(context, args)
        listens = _ip_address(args.listen)
        words = ("--address", args.listen, "--port", str(args.port))
        spec = answering_spec(context, args, SERVER, WHAT, words)
        name = spec.name.removeprefix(f"{WHAT} ")
        spec = msgspec.structs.replace(spec, entry=(*spec.entry, "--name", name))
        cluster = context.cluster(args)
        with context.screen.progress() as progress:
            job = cluster.launch(spec, submitted_by=submitter(context), progress=progress)
            with job.ending_with_driver():
                url = _served(job, progress)
        node = job.view().attempt.head.node
        job.rename(f"{spec.name} at {url}")  # so that every driver's jobs and status show it
        text = Text.assemble((f"{args.model}", "bold"), " is served at ", (url, "bold"))
        text.append(f" on {node}\n", "default")
        if listens.is_loopback:
            port = url.rpartition(":")[2].partition("/")[0]
            tunnel = f"ssh -N -L {port}:{args.listen}:{port} {node}"
            text.append(f"  only programs on {node} reach it; from elsewhere: {tunnel}\n", "dim")
        else:
            warning = "anyone who can reach this address can use the model: there is no password"
            text.append(f"  {warning}, and nothing is encrypted\n", "yellow")
        if any(one.progress and NO_TEMPLATE in one.progress.what for one in job.summary().ranks):
            warning = "this model has no chat template: it continues text (/v1/completions)"
            text.append(f"  {warning}, and takes no conversations\n", "yellow")
        text.append("  clients call the model ", "dim").append(f"{name}\n", "bold")
        text.append(f"  end it: {context.program} stop {job.id}", "dim")
        return Outcome(text, {"job_id": job.id, "url": url, "model": name, "node": node}, job=job)


def _ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Convert a word to the address to listen on.

    Raises:
        SpecError: it is none.
    """
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        cause = f"--address: {text!r} is no IP address"
        raise SpecError(cause, fix="use one of the node, or 0.0.0.0 for all of them") from None


def _served(job: Job, progress: Progress) -> str:
    """Return the URL that it serves at, once it does.

    Raises:
        MntrainError: why it does not.
    """
    progress.report("loading the model", 0, None)
    url = job.serving_url()
    if url is not None:
        return url
    view = job.view()
    if view.problem is not None:
        raise error_of(view.problem)
    cause = f"job {job.id}, which was to serve, is {view.state}"
    raise RefusedError(cause, fix=f"see mntrain logs {job.id}")
