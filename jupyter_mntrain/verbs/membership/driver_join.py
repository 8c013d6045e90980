"""``driver join``: makes this machine a driver of a cluster."""

from __future__ import annotations

import socket
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser, bounded_int
from jupyter_mntrain.command_line.token_input import add_token_arguments, read_token_text
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb

if TYPE_CHECKING:
    from jupyter_mntrain.trust.joining.candidate import Candidate
    from jupyter_mntrain.trust.joining.messages import Admission
    from jupyter_mntrain.trust.joining.token import Token

JOIN_PORT = 8766
"""Port on which a machine waits while it joins as a driver."""


class JoinAsDriver(Verb):
    name = "join"
    help = "join a cluster as a driver, with a token from mntrain driver invite"

    def add_arguments(self, parser: Parser) -> None:
        add_token_arguments(parser)
        parser.option("--name", metavar="NAME", help="name of this driver; default: USER-HOST")
        parser.option(
            "--port",
            type=bounded_int(0, LAST_PORT),
            default=JOIN_PORT,
            metavar="PORT",
            help=f"port to wait on until it is admitted; default: {JOIN_PORT}",
        )

    def run(self, context: Context, args: Namespace) -> Outcome:
        from jupyter_mntrain.cluster.loop import LoopThread
        from jupyter_mntrain.trust.certificates import NAME_FIX, Subject, is_member_name
        from jupyter_mntrain.trust.driver_membership import (
            clusters_directory,
            own_driver_name,
            room_for,
        )
        from jupyter_mntrain.trust.joining.candidate import Candidate
        from jupyter_mntrain.trust.joining.join_server import clock_problem

        name = args.name or own_driver_name()
        if not is_member_name(name):
            raise SpecError(f"{name!r} cannot be a driver's name", fix=NAME_FIX)
        token = _token(read_token_text(args, f"{context.program} driver join"), context)
        room = clusters_directory().parent
        candidate = Candidate(token, Subject(role=token.role, name=name), name, room=room)
        context.screen.say(
            Text(
                f"Waiting on port {args.port} for admission as {name}… Press Ctrl-C to give up.",
                style="dim",
            )
        )
        thread = LoopThread("mntrain-join")
        try:
            admission = thread.run(_seek(candidate, args.port, context))
        finally:
            thread.close()
        warnings = {}
        if (problem := clock_problem(admission, time.time())) is not None:
            context.screen.say(problem_text(problem, mark="⚠", style="yellow"))
            warnings = {"warnings": msgspec.to_builtins([problem])}
        cluster = args.cluster or admission.cluster
        candidate.keep(room_for(cluster), admission)
        kind = "driver" if token.role == "driver" else "read-only driver"
        text = Text.assemble(
            ("✓ ", "green"), (name, "bold"), f" is a {kind} of cluster {cluster}. Next: "
        )
        option = "" if cluster == "default" else f" --cluster {cluster}"
        text.append(f"{context.program} nodes{option}")
        text.append("\nRestart notebooks that already use a cluster of this name.", "dim")
        data = {"member": name, "cluster": cluster, "role": token.role}
        return Outcome(text, data | warnings)


async def _seek(candidate: Candidate, port: int, context: Context) -> Admission:
    from jupyter_mntrain.cluster.discovery.discovery import LOOPBACK, browsing_addresses
    from jupyter_mntrain.trust.joining.announcer import Announcer
    from jupyter_mntrain.trust.joining.join_server import seek_admission

    sources = browsing_addresses()
    hosts = tuple(source for source in sources if source != LOOPBACK) or (LOOPBACK,)
    addresses = tuple(f"{host}:{port}" for host in hosts)

    def hint() -> None:
        context.screen.say(
            Text(
                "Still waiting. Check that a notebook is running on the machine that invited, and "
                f"that no firewall blocks port {port} here. If multicast does not reach this "
                f"machine, run there: mntrain add {addresses[0]}",
                style="yellow",
            )
        )

    announcer = Announcer()
    with tempfile.TemporaryDirectory() as directory, _listening(port) as listening:
        try:
            return await seek_admission(
                candidate,
                announcer,
                sockets=[listening],
                addresses=addresses,
                sources=hosts,
                directory=Path(directory),
                hint=hint,
            )
        finally:
            await announcer.close()


def _listening(port: int) -> socket.socket:
    try:
        found = socket.create_server(("", port), reuse_port=False)
    except OSError as error:
        raise MntrainError(
            f"cannot listen on port {port}: {error}", fix="choose another with --port"
        ) from error
    found.setblocking(False)  # noqa: FBT003 - that is its name
    return found


def _token(text: str, context: Context) -> Token:
    from jupyter_mntrain.trust.joining.token import read_token

    token = read_token(text)
    if token.role == "node":
        raise SpecError(
            "this token is for a node",
            fix="use it with mntrain agent join; invite drivers with "
            f"{context.program} driver invite",
        )
    return token
