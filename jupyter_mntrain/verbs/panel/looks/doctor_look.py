"""Doctor look: what the doctor finds on the chosen nodes, asked in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jupyter_mntrain.doctor.finding import DoctorReport
from jupyter_mntrain.model import tunables
from jupyter_mntrain.model.errors import DoctorRefusedError, MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

TRUSTED_S = tunables.seconds("verbs.doctor_trusted_s")
MOST_KEPT = 8
"""Sets of participants whose answers are kept, for who goes back and forth."""

Participants = tuple[Participant, ...]
Answer = DoctorReport | Problem
"""What was found; a problem if the doctor could not ask."""

Examined = Callable[[Participants], Answer | None]
"""The answer about these participants; ``None`` if it is not known."""


class DoctorLook:
    """Keeps the answers about the last sets of participants.

    :meth:`ask` takes seconds and may run in any thread, one at a time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._answers: dict[Participants, tuple[Answer, float]] = {}
        self._has_refused = False

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Notice whether it refuses a launch."""
        self._has_refused = False
        try:
            yield
        except DoctorRefusedError:
            self._has_refused = True
            raise

    def of(self, participants: Participants) -> Answer | None:
        known = self._answers.get(participants)
        return known[0] if known else None

    def refuses(self, participants: Participants) -> bool:
        """Whether it refused the last launch, or would refuse one of these."""
        answer = self.of(participants)
        return self._has_refused or (isinstance(answer, DoctorReport) and not answer.can_launch)

    def is_due(self, participants: Participants, now_s: float) -> bool:
        """Whether to ask: somebody takes part, and the answer is missing or old."""
        known = self._answers.get(participants)
        return bool(participants) and (known is None or now_s - known[1] >= TRUSTED_S)

    def forget(self) -> None:
        """Let the next look ask again."""
        self._answers = {}

    def ask(self, participants: Participants, now_s: float) -> None:
        try:
            answer: Answer = self._cluster.doctor.examine(participants=participants)
        except MntrainError as error:
            answer = error.problem
        kept = [one for one in self._answers.items() if one[0] != participants]
        self._answers = dict([*kept[1 - MOST_KEPT :], (participants, (answer, now_s))])
