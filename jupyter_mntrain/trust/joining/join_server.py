"""Join server: waits for a driver to admit this agent. It is the only service without
authentication.

It listens where the agent will listen, with a self-signed certificate, until the agent is a member.
A client that proves to hold the token may give it a certificate of the cluster. An agent without a
token serves even less: it says that it is no member.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from tornado.web import Application as WebApplication

from jupyter_mntrain.http.bounded_server import BoundedServer, Bounds, Rate
from jupyter_mntrain.http.json_handler import JsonHandler
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.api import PROTOCOL, Route, ServiceRecord
from jupyter_mntrain.model.errors import MntrainError, TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.trust.certificates import key_pem, load_certificate
from jupyter_mntrain.trust.credentials import write_private
from jupyter_mntrain.trust.joining.announcer import Announcer
from jupyter_mntrain.trust.joining.candidate import Candidate
from jupyter_mntrain.trust.joining.messages import (
    Admission,
    Greeting,
    JoinRefusedError,
    Sealed,
)

# Clocks at joining: this machine's and the inviting driver's, which may differ. Pure.


TOLERANCE_S = 60.0
"""A larger difference between the clocks of a new member and its driver is reported."""

SET_CLOCK = "set the clock that is wrong, for example with: sudo timedatectl set-ntp true"


def clock_problem(admission: Admission, now_s: float) -> Problem | None:
    """Describe how far this machine's clock is from the driver's; ``None`` if they agree.

    Args:
        now_s: Unix time by this machine's clock, when the admission arrived.
    """
    if admission.time_s is None or abs(now_s - admission.time_s) <= TOLERANCE_S:
        return None
    ahead_s = now_s - admission.time_s
    side = "ahead of" if ahead_s > 0 else "behind"
    cause = f"this machine's clock is {duration_text(abs(ahead_s))} {side} the driver's"
    return Problem(kind=Kind.CLOCK_OFF, cause=cause, fix=SET_CLOCK)


def check_clock(admission: Admission, now_s: float) -> None:
    """Refuse a certificate that is not valid by this machine's clock: no connection would work.

    Raises:
        TrustError: it is not.
    """
    certificate = load_certificate(admission.certificate)
    now = datetime.fromtimestamp(now_s, UTC)
    if certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        return
    found = clock_problem(admission, now_s)
    cause = found.cause if found else f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC"
    raise TrustError(
        f"{cause}, so its new certificate is not valid here",
        kind=Kind.CLOCK_OFF,
        fix=f"{SET_CLOCK}; then join again",
    )


def expired(expires_s: int, now_s: float) -> TrustError:
    """Make the error for an invitation that expired before any driver connected."""
    now = datetime.fromtimestamp(now_s, UTC)
    since = duration_text(max(0.0, now_s - expires_s))
    return TrustError(
        f"the invitation expired {since} ago by this machine's clock ({now:%Y-%m-%d %H:%M} UTC), "
        "and no driver has connected",
        fix=f"if that clock is wrong, {SET_CLOCK}; otherwise create a new invitation: "
        "mntrain invite",
    )


def not_admitted(waited_s: float, addresses: Sequence[str]) -> TrustError:
    """Make the error for a candidate to which no driver connected in time."""
    return TrustError(
        f"no driver has connected to {' or '.join(addresses)} within {duration_text(waited_s)}",
        kind=Kind.NO_ANSWER,
        fix="open that TCP port in this machine's firewall for the notebook machine, then join "
        "again",
    )


MOST_BODY_BYTES = 64 * 2**10
"""Largest message or headers of a driver that admits this machine: certificates, a few KiB."""

IDLE_S = 10.0
"""Timeout for the next message of a driver that admits this machine."""
LATE_WAIT_S = tunables.seconds("trust.late_wait_s")
HINT_AFTER_S = 10.0
"""Time after which a machine that waits for admission says what may be wrong."""
MOST_CONNECTIONS = 64
"""Maximum number of connections to a machine that waits for admission, in total and per address:
all of them are strangers."""
BOUNDS = Bounds(
    handshakes=MOST_CONNECTIONS,
    handshake_s=IDLE_S,
    connections=MOST_CONNECTIONS,
    connections_each=16,
)
RATE_PER_S = 10
"""How often an address may connect to such a machine: per second in the long run, and at once."""
BURST = 50

PRIVATE_FILE = "joining.pem"


def refusing_server(
    key: ec.EllipticCurvePrivateKey,
    certificate: str,
    sockets: Sequence[socket.socket],
    directory: Path,
) -> BoundedServer:
    """A server that answers everybody that this node has not joined a cluster; see JoinServer."""
    fix = "on that machine: mntrain agent join, with a token from mntrain invite"
    return _open_server([], fix, _context(key, certificate, directory), sockets)


def _open_server(
    routes: list[tuple[str, type[JsonHandler], dict[str, object]]],
    fix: str,
    context: ssl.SSLContext,
    sockets: Sequence[socket.socket],
) -> BoundedServer:
    server = BoundedServer(
        WebApplication(routes, default_handler_class=_Nothing, default_handler_args={"fix": fix}),
        ssl_options=context,
        max_body_size=MOST_BODY_BYTES,
        max_header_size=MOST_BODY_BYTES,
        idle_connection_timeout=IDLE_S,
        body_timeout=IDLE_S,
        bounds=BOUNDS,
        member_of=lambda _, host: host,
        rate=Rate(RATE_PER_S, BURST),
    )
    server.add_sockets([one.dup() for one in sockets])
    return server


class JoinServer:
    """Serves the joining handshake, and nothing else.

    Args:
        sockets: bound already; it listens on duplicates, for the agent uses them itself.
        directory: private; holds the key while the server starts.
    """

    def __init__(
        self, candidate: Candidate, sockets: Sequence[socket.socket], directory: Path
    ) -> None:
        self.candidate = candidate
        self.outcome: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._server = _open_server(
            [(Route.JOIN, _Join, {"server": self})],
            "only the driver that made its token can admit it",
            _context(candidate.key, candidate.certificate, directory),
            sockets,
        )

    async def close(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()

    def take(self, sealed: Sealed, where: str) -> None:
        """Accept an admission.

        Raises:
            TrustError: its sender does not hold the token.
        """
        if self.outcome.done():
            return
        try:
            self.outcome.set_result(self.candidate.admitted(sealed, where))
        except JoinRefusedError as error:
            self.outcome.set_exception(error)


async def seek_admission(
    candidate: Candidate,
    announcer: Announcer,
    *,
    sockets: Sequence[socket.socket],
    addresses: tuple[str, ...],
    sources: tuple[str, ...],
    directory: Path,
    hint: Callable[[], object],
    patience_s: float | None = None,
) -> Admission:
    """Announce the candidate, and wait until a driver admits it.

    Args:
        sockets: bound already; the server listens on duplicates.
        addresses: ``host:port``, as announced.
        sources: this machine's addresses to announce from.
        directory: private; holds the key while the server starts.
        hint: called once if it takes long.
        patience_s: gives up after this time; default: when the token expires.

    Raises:
        TrustError: the invitation has expired, the driver refuses, or this machine's clock is too
            far off.
    """
    # Only the driver's clock decides: this one may be ahead.
    left_s = max(candidate.token.expires_s - time.time(), LATE_WAIT_S)
    is_short = patience_s is not None and patience_s < left_s
    server = JoinServer(candidate, sockets, directory)
    record = ServiceRecord(
        node_id=candidate.subject.name,
        name=candidate.name,
        protocol=PROTOCOL,
        joining=candidate.token.id,
        instance=secrets.token_hex(8),
    )
    telling = asyncio.ensure_future(announcer.announce(record, addresses, sources))
    hinting = asyncio.get_running_loop().call_later(HINT_AFTER_S, hint)
    try:
        admission = await asyncio.wait_for(server.outcome, patience_s if is_short else left_s)
    except TimeoutError:
        if is_short:
            raise not_admitted(patience_s or 0.0, addresses) from None
        raise expired(candidate.token.expires_s, time.time()) from None
    finally:
        hinting.cancel()
        telling.cancel()
        with suppress(asyncio.CancelledError):
            await telling
        await server.close()
    check_clock(admission, time.time())
    return admission


class _Handler(JsonHandler):
    statuses = {MntrainError: 403}

    def log_exception(self, *_: object) -> None:
        """Log nothing: strangers can send anything."""


class _Nothing(_Handler):
    def initialize(self, fix: str) -> None:
        self.fix = fix

    def prepare(self) -> None:
        problem = Problem(
            kind=Kind.NOT_JOINED,
            cause="this agent is not a member of a cluster yet",
            fix=self.fix,
        )
        self.answer(problem, 403)


class _Join(_Handler):
    def initialize(self, server: JoinServer) -> None:
        self.server = server

    @property
    def _where(self) -> str:
        return self.request.remote_ip or ""

    def post(self) -> None:
        self.answer(self.server.candidate.apply(self.body_as(Greeting), self._where))

    def put(self) -> None:
        self.server.take(self.body_as(Sealed), self._where)
        self.answer({})


def _context(key: ec.EllipticCurvePrivateKey, certificate: str, directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The ssl module reads keys from files only.
    path = directory / f"{PRIVATE_FILE}.{secrets.token_hex(4)}"
    write_private(path, key_pem(key).decode() + certificate)
    try:
        context.load_cert_chain(path)
    finally:
        path.unlink(missing_ok=True)
    return context
