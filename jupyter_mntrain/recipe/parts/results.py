"""Sections of what a run leaves: checkpoints, evaluations, the trained model, reports."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

from msgspec import Meta

from jupyter_mntrain.model._record import UserRecord
from jupyter_mntrain.model.api import LAST_PORT
from jupyter_mntrain.model.errors import RecipeError

REPORT_PROJECT = "mntrain"
"""Of a report whose recipe names none."""


MOST_STEPS = 100_000_000

_Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class CheckpointSection(UserRecord, frozen=True):
    """Checkpoints, from which an interrupted run resumes: weights, optimizer, position in the data.

    ``directory`` may be shared by all nodes or local to each; each run gets its own folder in it.
    By default, checkpoints are stored beside the jobs on each node, and stay.
    ``interval_steps`` 0 saves at the end only. ``interval_minutes`` above 0 takes its place: a
    checkpoint is saved once as many minutes have passed since the last one. So does
    ``failure_hours``, the mean time between failures: then the interval follows from how long a
    save holds training up (Young 1974). ``keep`` is the number of checkpoints to keep, and
    ``keep_best`` how many of the lowest evaluation losses stay beside them. With ``copies`` 2, each
    shard also goes to the next node, so that a node may be lost with its disk; in a shared
    directory nothing is sent. ``copy_to`` is a directory of durable storage that all nodes share:
    each checkpoint is copied there, into the run's own folder.
    """

    directory: Annotated[str, Meta(min_length=1)] | None = None
    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 100
    interval_minutes: Annotated[float, Meta(ge=0.0, le=10080.0)] = 0.0
    failure_hours: Annotated[float, Meta(ge=0.0, le=100_000.0)] = 0.0
    at_end: bool = True
    keep: Annotated[int, Meta(ge=1, le=1000)] = 2
    keep_best: Annotated[int, Meta(ge=0, le=1000)] = 0
    copies: Annotated[int, Meta(ge=1, le=2)] = 1
    copy_to: Annotated[str, Meta(min_length=1)] | None = None

    @property
    def counts_time(self) -> bool:
        """Whether a checkpoint is due after some time, rather than after some steps."""
        return self.interval_minutes > 0 or self.failure_hours > 0


def check_checkpoint(section: CheckpointSection) -> None:
    """Refuse directories that are relative or the same, and two intervals.

    Raises:
        RecipeError: naming the field and what to change.
    """
    places = []
    for field in ("directory", "copy_to"):
        given = getattr(section, field)
        if given is not None and not given.startswith(("/", "~")):
            cause = f"checkpoint.{field} = {given!r}: a relative path is not allowed"
            raise RecipeError(cause, fix="use an absolute path, from / or ~")
        places.append(given and PurePath(given))
    if places[0] is not None and places[0] == places[1]:
        cause = "checkpoint.copy_to is checkpoint.directory: a copy there is none"
        raise RecipeError(cause, fix="name another directory, or leave copy_to out")
    if section.interval_minutes and section.failure_hours:
        cause = "checkpoint.interval_minutes and checkpoint.failure_hours both say when to save"
        raise RecipeError(cause, fix="set one of them to 0")


class OutputSection(UserRecord, frozen=True):
    """The trained model, as a Hugging Face directory that transformers, vLLM and others can load.

    ``directory`` defaults to a folder ``model`` beside the checkpoints. A directory that is not
    empty is refused unless ``replace`` is true, or the same run wrote it. If it is local to each
    node, the head's gets the whole model; with ``gather`` false, each node keeps its own part.
    ``shard_gb`` is the largest size of a file.
    """

    at_end: bool = True
    directory: Annotated[str, Meta(min_length=1)] | None = None
    replace: bool = False
    gather: bool = True
    shard_gb: Annotated[float, Meta(gt=0.0, le=1000.0)] = 5.0


class EvaluationSection(UserRecord, frozen=True):
    """Evaluation: the loss on held-out text, before the first step, between steps, and at the end.

    ``interval_steps`` 0 disables it. The last ``share`` of the text is held out, of which at most
    ``sequences`` are used. After ``stop_after`` evaluations in a row that are no better than the
    best so far, the run ends as after its last step; 0 never does.

    ``prompts`` are texts that the model continues at each evaluation, greedily and with at most
    ``prompt_tokens`` new tokens; for chat, each is the user's turn. Each token takes a pass through
    the pipeline.
    """

    interval_steps: Annotated[int, Meta(ge=0, le=MOST_STEPS)] = 0
    share: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.05
    sequences: _Count = 64
    stop_after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    prompts: tuple[str, ...] = ()
    prompt_tokens: Annotated[int, Meta(ge=1, le=4096)] = 40


ReportKind = Literal["tensorboard", "wandb", "trackio", "prometheus"]


class ReportSection(UserRecord, frozen=True):
    """Reports that rank 0 sends elsewhere: a list in ``to``, ``[]`` for none.

    It defaults to ``["tensorboard"]`` if that is installed: event files in the folder
    ``tensorboard`` beside the checkpoints. ``project`` and ``run_name`` name the run in W&B,
    Trackio and Prometheus; they default to ``mntrain`` and the run's id. Prometheus scrapes
    ``/metrics`` at ``prometheus_address`` on the node of rank 0.
    """

    to: tuple[ReportKind, ...] | None = None
    project: Annotated[str, Meta(min_length=1)] | None = None
    run_name: Annotated[str, Meta(min_length=1)] | None = None
    prometheus_port: Annotated[int, Meta(ge=1, le=LAST_PORT)] = 9400
    prometheus_address: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
