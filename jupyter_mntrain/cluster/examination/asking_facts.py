"""Asking for facts: what an agent tells the doctor, and how far its clock is off."""

from __future__ import annotations

from jupyter_mntrain.cluster.agents.client import AgentClient
from jupyter_mntrain.cluster.view.agent_watch import Clock
from jupyter_mntrain.doctor.check import Examined
from jupyter_mntrain.model.errors import MntrainError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import MachineQuestion
from jupyter_mntrain.model.records.job import Participant
from jupyter_mntrain.model.records.node import NodeInfo


async def ask_facts(
    client: AgentClient,
    info: NodeInfo,
    question: MachineQuestion,
    clock: Clock,
    participant: Participant | None = None,
) -> Examined:
    """Ask one agent; an older one does not know the question.

    Raises:
        MntrainError: it does not answer.
    """
    begun_s = clock.time()
    try:
        facts = await client.machine_facts(question)
    except MntrainError as error:
        if error.problem.kind is Kind.NO_SUCH_ROUTE:
            return Examined(info=info, participant=participant)
        raise
    ended_s = clock.time()
    return Examined(
        info=info,
        facts=facts,
        # It reads its clock as the last thing but for what it sends.
        clock_ahead_s=facts.time_s - ended_s,
        clock_error_s=ended_s - begun_s,
        participant=participant,
    )
