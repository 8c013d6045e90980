"""Errors that a user can meet. Each carries a Problem: kind, node, cause and fix.

MntrainError
├── SpecError          the request itself is invalid (exit code 2)
├── NodeError          a node is unknown, silent or of another cluster (exit code 3)
├── RefusedError       a participant refused a lease or a start (exit code 4)
│   └── PortTakenError the requested port is in use
├── JobNotFoundError   no reachable node knows the job (exit code 5)
├── RecipeError        a recipe field is misspelled, missing or out of range (exit code 2)
├── NotFiniteError     the loss or the gradient became NaN or infinite (exit code 7)
├── MissingLibraryError  a required library is not installed (exit code 2)
└── TrustError         a certificate, token or proof is invalid (exit code 6)
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Self

from jupyter_mntrain.model.failure.kinds import SILENCES, Kind

if TYPE_CHECKING:
    from jupyter_mntrain.model.failure.problem import Problem


MOST_NAMED = 5
"""Clusters that an error proposes."""

LONGEST_SHOWN = 60
"""Characters of a person's own text that an error repeats."""


class MntrainError(Exception):
    """Exception that carries a :attr:`problem`; its ``str()`` is for logs and tracebacks.

    Args:
        cause: what is wrong, without a final period.
        kind: by default the class's.
        fix: what to do next, without a final period.
        node: display name of the node it happened on, if any.
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
        # Imported here to keep the supervisor small: it imports errors and raises none.
        from jupyter_mntrain.model.failure.problem import Problem

        self.left_behind: tuple[str, ...] = ()
        """What could not be undone after a failure."""
        self.problem = Problem(kind=kind or self.default, cause=cause, fix=fix or "", node=node)
        super().__init__(cause)

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Make an error that carries a given problem."""
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
        """Add to the cause what could not be undone."""
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
    """Raised on import of a module whose library is missing; also an ``ImportError``."""

    default = Kind.MISSING_LIBRARY
    exit_code = 2


class NotFiniteError(MntrainError):
    """Raised by every rank of the built-in trainer after the same step, if its loss or gradients
    are NaN or infinite, or too many steps in a row are spikes.
    """

    default = Kind.LOSS_NAN
    exit_code = 7


class NodeError(MntrainError):
    """A node failed. The kind is one of ``SILENCES`` if it could not be reached."""

    default = Kind.NODE
    exit_code = 3


class RefusedError(MntrainError):
    default = Kind.REFUSED
    exit_code = 4


class DoctorRefusedError(RefusedError):
    """The doctor found a problem that would end a job or make it hang; a launch can skip the
    doctor.
    """

    found: tuple[Problem, ...] = ()
    """All that it found, the worst first, without the words on how to go without it."""


class PortTakenError(RefusedError):
    default = Kind.PORT_TAKEN


class JobNotFoundError(MntrainError):
    default = Kind.NO_SUCH_JOB
    exit_code = 5


def bad_argument(name: str, value: object, use: str) -> SpecError:
    """Return the error for an argument of the Python API that has the wrong type.

    Args:
        use: what to pass instead.
    """
    return SpecError(f"{name}={reprlib.repr(value)} cannot be used", fix=f"use {use}")


def not_answered(words: str, meant: str = "") -> NodeError:
    """Return the error for a request to a node that has not answered this driver yet.

    Args:
        words: which nodes, and for how long.
        meant: what cannot be known without them.
    """
    return NodeError(
        f"{words}, so {meant}" if meant else words,
        kind=Kind.NO_ANSWER,
        fix="see mntrain nodes for the reason; check the load of that machine, then try again",
    )


def shortened(text: str) -> str:
    """Shorten a user's text to be quoted in an error."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def job_not_found(job_id: str, namesakes: Sequence[str] = ()) -> JobNotFoundError:
    """Return the error for a job id, or the beginning of one, that no reachable node knows.

    Args:
        namesakes: ids of the jobs that have it as their name.
    """
    job_id = shortened(job_id)
    fix = "see mntrain jobs; jobs of unreachable nodes are not listed"
    if namesakes:
        fix = f"'{job_id}' is a job's name; use its id: {' or '.join(namesakes)}"
    return JobNotFoundError(f"no reachable node knows job {job_id}", fix=fix)


class TrustError(MntrainError):
    """A certificate, token or proof is invalid."""

    default = Kind.NOT_TRUSTED
    exit_code = 6


def no_cluster(name: str, known: Sequence[str] = ()) -> TrustError:
    """Return the error for a cluster for which this user has no keys.

    Args:
        known: clusters of which they have.
    """
    others = f"use --cluster {' or '.join(known[:MOST_NAMED])}; " if known else ""
    return TrustError(
        f"no cluster named {name!r} exists on this machine yet",
        fix=f"{others}create it by inviting a node: mntrain invite, or join one created on "
        "another machine: mntrain driver join",
    )


def error_of(problem: Problem) -> MntrainError:
    """Make the error for a problem that another process reported."""
    families: dict[Kind, type[MntrainError]] = {
        kind.default: kind
        for kind in (SpecError, RecipeError, NodeError, PortTakenError, JobNotFoundError)
    }
    is_silence = problem.kind in SILENCES or problem.kind is Kind.BROKEN
    return families.get(problem.kind, NodeError if is_silence else RefusedError).of(problem)
