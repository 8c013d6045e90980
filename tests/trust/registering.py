"""Members that join and are registered, by a clock that tests set."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from cryptography.hazmat.primitives.asymmetric import ec

from jupyter_mntrain.trust.certificates import (
    Subject,
    load_certificate,
    new_key,
    request,
)
from jupyter_mntrain.trust.driver_membership import DriverMembership
from jupyter_mntrain.trust.joining.messages import Admission, Application
from jupyter_mntrain.trust.joining.token import Token, endorse, new_nonce
from jupyter_mntrain.trust.registrar import RegisteredMember

LIFE = timedelta(days=20)
NODE = Subject(role="node", name="ab" * 16)
START_S = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


KEYS: dict[str, ec.EllipticCurvePrivateKey] = defaultdict(new_key)
"""Of members that keep theirs, by URI."""


def join(
    identity: DriverMembership,
    token: Token,
    subject: Subject = NODE,
    *,
    key: ec.EllipticCurvePrivateKey | None = None,
    former: ec.EllipticCurvePrivateKey | None = None,
) -> Admission:
    invite = next(one for one in identity.authorized().invites() if one.token == token)
    wanted = request(key or KEYS[subject.uri], subject)
    asked = Application(
        nonce=new_nonce(),
        subject=subject,
        name="n1",
        request=wanted,
        endorsement=endorse(former, wanted) if former else b"",
    )
    return identity.authorized().admit(invite, asked)


def member(identity: DriverMembership, subject: Subject = NODE) -> RegisteredMember:
    return next(m for m in identity.authorized().members() if m.subject == subject)


def serial(pem: str) -> int:
    return load_certificate(pem).serial_number
