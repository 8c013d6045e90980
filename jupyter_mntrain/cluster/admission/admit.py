"""Admission: connects to a machine that waits with one of our tokens, and admits it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import httpx
import msgspec

from jupyter_mntrain.cluster.agents.transport import (
    MOST_BYTES,
    MOST_STRANGERS_BYTES,
    TROUBLE,
    open_http,
    shown_certificate,
    transport_error,
)
from jupyter_mntrain.http.agent_calls import not_an_agent, refusal
from jupyter_mntrain.model.api import Route
from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.text.foreign import shown_name
from jupyter_mntrain.trust.credentials import blind_context
from jupyter_mntrain.trust.joining.messages import (
    Application,
    Greeting,
    Sealed,
    read,
    seal,
    unseal,
)
from jupyter_mntrain.trust.joining.proof import Conversation, new_nonce
from jupyter_mntrain.trust.member_register import IssuedInvitation
from jupyter_mntrain.trust.registrar import Registrar


async def admit(
    address: str, registrar: Registrar, invites: Sequence[IssuedInvitation]
) -> Application:
    """Admit the machine that waits at ``address`` with one of these invitations.

    Raises:
        NodeError: no machine waits there.
        TrustError: it has none of these tokens, the connection is intercepted, or the invitation
            is used up. The other side gets the cause, too.
    """
    nonce = new_nonce()
    async with open_http(blind_context()) as http:
        body = msgspec.json.encode(Greeting(nonce=nonce))
        response = await _send(http, address, "POST", body)
        sealed = _decoded(response, address)
        shown = hashlib.sha256(shown_certificate(response)).digest()
        seen = Conversation(shown, nonce, read(sealed, Application).nonce)
        try:
            invite, application = _recognize(sealed, invites, seen)
        except TrustError as error:
            registrar.note_refused(address, error.cause)
            raise
        admission = registrar.admit(invite, application, where=address)
        sealed = seal(admission, invite.token, seen)
        await _send(http, address, "PUT", msgspec.json.encode(sealed))
    if admission.refusal is not None:
        name = shown_name(application.name)
        raise TrustError(f"{name}: {admission.refusal}", fix=admission.fix)
    registrar.note_joined(invite, application.subject)
    return application


def _recognize(
    sealed: Sealed, invites: Sequence[IssuedInvitation], seen: Conversation
) -> tuple[IssuedInvitation, Application]:
    problem = TrustError("there are no open invitations", fix="invite: mntrain invite")
    for invite in invites:
        try:
            return invite, unseal(sealed, Application, invite.token, seen)
        except TrustError as error:
            problem = error
    raise problem


async def _send(http: httpx.AsyncClient, address: str, method: str, body: bytes) -> httpx.Response:
    try:
        response = await http.request(
            method,
            f"https://{address}{Route.JOIN}",
            content=body,
            extensions={MOST_BYTES: MOST_STRANGERS_BYTES},
        )
    except TROUBLE as error:
        raise transport_error(error, address, address) from error
    if not response.is_success:
        raise refusal(response.content, address, address)
    return response


def _decoded(response: httpx.Response, address: str) -> Sealed:
    try:
        return msgspec.json.decode(response.content, type=Sealed)
    except msgspec.DecodeError as error:
        raise not_an_agent(address, address) from error
