"""Doctor look: what the doctor finds for the chosen launch, asked in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jupyter_mntrain.doctor.check import DoctorReport
from jupyter_mntrain.model.errors import DoctorRefusedError, MntrainError
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.verbs.panel.choices import Choices
from jupyter_mntrain.workload.built import Built

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster

TRUSTED_S = 60.0
"""How long the panel trusts what the doctor found on the chosen nodes: a launch looks again
anyway."""
MOST_KEPT = 8
"""Number of launches whose answers are cached, for switching between them."""

NO_MATTER = (
    *("nodes", "others_take_part", "head"),
    *("schedule", "microbatches", "steps", "batch"),
    *("name", "priority", "restart", "restarts", "min_nodes", "waits", "skips_doctor"),
)
"""Fields of :class:`Choices` by which no node is judged; of the first, the participants tell."""

Participants = tuple[Participant, ...]
Answer = DoctorReport | Problem
"""What was found; a problem if the doctor could not ask."""

CheckedNode = Callable[[Participants], Answer | None]
"""The answer about these participants; ``None`` if it is not known."""


class About(NamedTuple):
    """What an answer depends on, besides the participants.

    Args:
        target: key of what is launched.
        changed_s: when its file was last changed.
        choices: those by which nodes can be judged.
    """

    target: str = ""
    changed_s: float = 0.0
    choices: Choices = Choices()


class _Known(NamedTuple):
    participants: Participants
    about: About
    answer: Answer
    asked_s: float


class DoctorLook:
    """Caches the doctor's answers for the launches chosen last.

    What :meth:`asking` returns takes seconds and may run in any thread, one at a time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._about = About()
        self._answers: list[_Known] = []
        self._has_refused = False

    def about(self, target: str, changed_s: float, choices: Choices) -> CheckedNode:
        """Switch to a launch; return a function that finds its cached answers."""
        no_matter = {name: getattr(Choices(), name) for name in NO_MATTER}
        judged = msgspec.structs.replace(choices, **no_matter)
        self._about = About(target, changed_s, judged)
        return self.of

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Note whether the doctor refuses the launch in this context."""
        self._has_refused = False
        try:
            yield
        except DoctorRefusedError:
            self._has_refused = True
            raise

    def of(self, participants: Participants) -> Answer | None:
        known = self._known(participants)
        return known.answer if known else None

    def refuses(self, participants: Participants) -> bool:
        """Whether the doctor refused the last launch, or would refuse this one."""
        answer = self.of(participants)
        return self._has_refused or (isinstance(answer, DoctorReport) and not answer.can_launch)

    def is_due(self, participants: Participants, now_s: float) -> bool:
        """Whether to ask: there are participants, and the answer is missing or old."""
        known = self._known(participants)
        return bool(participants) and (known is None or now_s - known.asked_s >= TRUSTED_S)

    def forget(self) -> None:
        """Make the next look ask again."""
        self._answers = []

    def asking(
        self, participants: Participants, built: Built | None, now_s: float
    ) -> Callable[[], None]:
        """Return a function that asks about this launch.

        Args:
            built: ``None`` if its options are wrong: its nodes are examined.
        """
        return partial(self._ask, self._about, participants, built, now_s)

    def _ask(
        self, about: About, participants: Participants, built: Built | None, now_s: float
    ) -> None:
        examine = self._cluster.doctor.examine
        try:
            answer: Answer = (
                examine(participants=participants)
                if built is None
                else examine(spec=built.spec, project=built.project)
            )
        except MntrainError as error:
            answer = error.problem
        kept = [
            one for one in self._answers if (one.participants, one.about) != (participants, about)
        ]
        self._answers = [*kept[1 - MOST_KEPT :], _Known(participants, about, answer, now_s)]

    def _known(self, participants: Participants) -> _Known | None:
        wanted = (participants, self._about)
        return next((one for one in self._answers if (one.participants, one.about) == wanted), None)
