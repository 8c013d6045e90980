"""Errors: every one that a user can meet. Each carries a Problem: kind, node, cause and fix.

MntrainError
├── SpecError          what was asked for is wrong in itself (exit code 2)
├── NodeError          a node is unknown, silent or of another cluster (exit code 3)
├── RefusedError       a participant refused a lease or a start (exit code 4)
│   └── PortTakenError the port that was asked for is in use
├── JobNotFoundError   no reachable node knows the job (exit code 5)
├── RecipeError        a recipe field is misspelled, missing or out of range (exit code 2)
├── MissingLibraryError  what was asked for needs a library that is not installed (exit code 2)
└── TrustError         a certificate, a token or a proof is not what it should be (exit code 6)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from jupyter_mntrain.model.failure.kinds import SILENCES, Kind

if TYPE_CHECKING:
    from jupyter_mntrain.model.failure.problem import Problem


class MntrainError(Exception):
    """A problem that is raised. Read :attr:`problem`; ``str()`` is for logs and tracebacks.

    Args:
        cause: what is wrong, without a full stop.
        kind: by which code tells it apart; as a rule the class says enough.
        fix: what to do next, without a full stop.
        node: display name of the node it happened on, where there is one.
    """

    default: ClassVar[Kind] = Kind.ERROR
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        cause: str,
        *,
        kind: Kind | None = None,
        fix: str | None = None,
        node: str | None = None,
    ) -> None:
        # Here: the keeper, which is to stay small, imports errors and raises none.
        from jupyter_mntrain.model.failure.problem import Problem

        self.left_behind: tuple[str, ...] = ()
        """What of an undertaking that failed could not be undone."""
        self.problem = Problem(kind=kind or self.default, cause=cause, fix=fix or "", node=node)
        super().__init__(cause)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """An error that carries a problem as it is."""
        error = cls(problem.cause)
        error.problem = problem
        return error

    @property
    def kind(self) -> Kind:
        return self.problem.kind

    @property
    def cause(self) -> str:
        return self.problem.cause

    @property
    def fix(self) -> str:
        return self.problem.fix

    @property
    def node(self) -> str | None:
        return self.problem.node

    def leave_behind(self, left: Sequence[str]) -> None:
        """Say after the cause what could not be undone."""
        import msgspec  # loaded already by the problem's record

        self.left_behind = (*self.left_behind, *left)
        cause = f"{self.cause} ({'; '.join(left)})"
        self.problem = msgspec.structs.replace(self.problem, cause=cause)

    def __str__(self) -> str:
        return str(self.problem)


class SpecError(MntrainError):
    default = Kind.BAD_SPEC
    exit_code = 2


class RecipeError(MntrainError):
    default = Kind.BAD_RECIPE
    exit_code = 2


class MissingLibraryError(MntrainError, ImportError):
    """Raised by the import of what needs the library; an ``ImportError``, too."""

    default = Kind.MISSING_LIBRARY
    exit_code = 2


class NodeError(MntrainError):
    """Its kind is one of ``SILENCES`` when the node could not be talked to."""

    default = Kind.NODE
    exit_code = 3


class RefusedError(MntrainError):
    default = Kind.REFUSED
    exit_code = 4


class PortTakenError(RefusedError):
    default = Kind.PORT_TAKEN


class JobNotFoundError(MntrainError):
    default = Kind.NO_SUCH_JOB
    exit_code = 5


class TrustError(MntrainError):
    """A certificate, a token or a proof is not what it should be."""

    default = Kind.NOT_TRUSTED
    exit_code = 6


def error_of(problem: Problem) -> MntrainError:
    """The error that carries a problem which another process has handed over."""
    families: dict[Kind, type[MntrainError]] = {
        kind.default: kind
        for kind in (SpecError, RecipeError, NodeError, PortTakenError, JobNotFoundError)
    }
    is_silence = problem.kind in SILENCES or problem.kind is Kind.BROKEN
    return families.get(problem.kind, NodeError if is_silence else RefusedError).of(problem)
