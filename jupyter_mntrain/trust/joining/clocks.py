"""Clocks at joining: this machine's and the inviting driver's, which may differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import duration_text
from jupyter_mntrain.trust.certificates import load_certificate
from jupyter_mntrain.trust.joining.messages import Admission

TOLERANCE_S = 60.0
"""A larger difference between the clocks of a new member and its driver is reported."""

SET_CLOCK = "set the clock that is wrong, for example with: sudo timedatectl set-ntp true"


def clock_problem(admission: Admission, now_s: float) -> Problem | None:
    """How far this machine's clock is from the driver's; ``None`` if both agree.

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
    """Refuse a certificate that is not valid by this machine's clock: nobody could connect.

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
    """The error for an invitation that has expired by this machine's clock, and no driver came."""
    now = datetime.fromtimestamp(now_s, UTC)
    since = duration_text(max(0.0, now_s - expires_s))
    return TrustError(
        f"the invitation expired {since} ago by this machine's clock ({now:%Y-%m-%d %H:%M} UTC), "
        "and no driver has connected",
        fix=f"if that clock is wrong, {SET_CLOCK}; otherwise create a new invitation: "
        "mntrain invite",
    )


def not_admitted(waited_s: float, addresses: Sequence[str]) -> TrustError:
    """The error for an applicant that no driver has come to in the time that it was given."""
    return TrustError(
        f"no driver has connected to {' or '.join(addresses)} within {duration_text(waited_s)}",
        kind=Kind.NO_ANSWER,
        fix="open that TCP port in this machine's firewall for the notebook machine, then join "
        "again",
    )
