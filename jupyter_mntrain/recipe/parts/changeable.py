"""Changeable: which settings change while a job runs, and why the others do not."""

from __future__ import annotations

from typing import Final

CHANGEABLE: Final = frozenset(
    {
        "train.steps",
        "train.log_interval",
        "optimizer.learning_rate",
        "optimizer.schedule",
        "optimizer.warmup_steps",
        "optimizer.min_ratio",
        "optimizer.decay_share",
        "optimizer.power",
        "optimizer.clip_norm",
        "checkpoint.interval_steps",
        "checkpoint.interval_minutes",
        "checkpoint.failure_hours",
        "checkpoint.keep",
        "checkpoint.keep_best",
        "checkpoint.at_end",
        "evaluation.interval_steps",
        "evaluation.stop_after",
    }
)
"""What every step, save and evaluation reads anew, by ``section.field``."""

FIXED: Final = {
    "model": "the model is built before the first step",
    "data": "data is read and divided into batches before the first step",
    "tokens": "the model is built before the first step",
    "pipeline": "stages and microbatches are laid out before the first step",
    "data_parallel": "pipelines, and how they meet, are set up before the first step",
    "optimizer": "the optimizer is made before the first step",
    "adapters": "the model is built before the first step",
    "memory": "memory is laid out before the first step",
    "train": "ranks, devices and random numbers are set up before the first step",
    "train.epochs": "data is read, and the steps of epochs are counted, before the first step",
    "train.batch_size": "data is read and divided into batches before the first step",
    "train.accumulation": "stages and microbatches are laid out before the first step",
    "checkpoint": "the directory of checkpoints is opened before the first step",
    "evaluation": "what is held out is chosen before the first step",
    "output": "the directory of the model is checked before the first step",
    "report": "reports are opened before the first step",
}
"""Why the other settings of a section, or one of them, do not."""


def why_fixed(name: str) -> str:
    """Why a setting does not change while a job runs; empty if it does."""
    if name in CHANGEABLE:
        return ""
    return FIXED.get(name) or FIXED[name.partition(".")[0]]
