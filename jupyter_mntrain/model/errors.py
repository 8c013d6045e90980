"""Errors: every one that a user can meet, with node, cause and fix.

MntrainError
├── SpecError          what was asked for is wrong in itself (exit code 2)
├── NodeError          a node is unknown, silent or of another cluster (exit code 3)
├── RefusedError       a participant refused a lease or a start (exit code 4)
│   └── PortTakenError somebody else has the port that was asked for
├── JobNotFoundError   no reachable node knows the job (exit code 5)
├── RecipeError        a recipe field is misspelled, missing or out of range (exit code 2)
├── MissingLibraryError  what was asked for needs a library that is not installed (exit code 2)
└── TrustError         a certificate, a token or a proof is not what it should be (exit code 6)
"""

from __future__ import annotations

from typing import ClassVar, Literal

Silence = Literal[
    "refused",
    "timed out",
    "unreachable",
    "broken off",
    "not an agent",
    "not joined",
    "wrong cluster",
    "other authority",
    "revoked",
    "expired",
    "clock off",
    "wrong node",
    "protocol",
]
"""Why a node could not be talked to. After ``timed out`` and ``broken off`` the request may have
been acted on; requests are idempotent, so asking again is right."""


class MntrainError(Exception):
    """One sentence of cause, one of fix: ``node: cause. Fix: …``.

    Args:
        cause: what is wrong, without a trailing full stop.
        fix: what to do next, without a trailing full stop.
        node: display name of the node it happened on, where there is one.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, cause: str, *, fix: str | None = None, node: str | None = None) -> None:
        self.cause = cause
        self.fix = fix
        self.node = node
        super().__init__(str(self))

    def __str__(self) -> str:
        where = f"{self.node}: " if self.node else ""
        then = f". Fix: {self.fix}." if self.fix else "."
        return f"{where}{self.cause}{then}"


class SpecError(MntrainError):
    code = "bad-spec"
    exit_code = 2


class RecipeError(MntrainError):
    code = "bad-recipe"
    exit_code = 2


class MissingLibraryError(MntrainError, ImportError):
    """Raised by the import of what needs the library; an ``ImportError``, too."""

    code = "missing-library"
    exit_code = 2


class NodeError(MntrainError):
    """``reason`` is set when the node could not be talked to, ``None`` when it said no itself."""

    code = "node"
    exit_code = 3

    def __init__(
        self,
        cause: str,
        *,
        fix: str | None = None,
        node: str | None = None,
        reason: Silence | None = None,
    ) -> None:
        self.reason = reason
        super().__init__(cause, fix=fix, node=node)


class RefusedError(MntrainError):
    code = "refused"
    exit_code = 4


class PortTakenError(RefusedError):
    code = "port-taken"


class JobNotFoundError(MntrainError):
    code = "no-such-job"
    exit_code = 5


class TrustError(MntrainError):
    """A certificate, a token or a proof is not what it should be."""

    code = "not-trusted"
    exit_code = 6
