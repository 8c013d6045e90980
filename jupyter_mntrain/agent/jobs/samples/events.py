"""What a rank's sample changes of its part. Pure."""

from __future__ import annotations

from jupyter_mntrain.model.lifecycle.events import (
    PartEvent,
    RankDone,
    RankStepped,
    RankUp,
    SavedEvent,
    SettingsTaken,
)
from jupyter_mntrain.model.records.metrics import (
    RankEnd,
    RankSample,
    RankSaved,
    RankSettings,
    RankStart,
    RankStep,
)


def event_of(sample: RankSample) -> PartEvent | None:
    """The event that a sample tells of; most tell of none."""
    match sample:
        case RankStart(rank=rank, pid=pid, saves=saves, resumed_step=resumed):
            return RankUp(rank=rank, pid=pid, saves=saves, resumed_step=resumed)
        case RankStep(rank=rank, step=step):
            return RankStepped(rank=rank, step=step)
        case RankSaved(step=step, time_s=time_s, is_scheduled=is_scheduled):
            return SavedEvent(step=step, time_s=time_s, is_scheduled=is_scheduled)
        case RankSettings(change=change):
            return SettingsTaken(change=change)
        case RankEnd(ok=True, rank=rank, time_s=time_s):
            return RankDone(rank=rank, time_s=time_s)
        case _:
            return None
