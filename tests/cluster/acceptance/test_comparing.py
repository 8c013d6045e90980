"""What an acceptance run makes of what it sees: losses to the last bit, leases, times."""

from __future__ import annotations

from typing import Any

import msgspec

from jupyter_mntrain.cluster.acceptance.broken_jobs import (
    MOMENT_S,
    BrokenJob,
    HeldLeases,
    StepSums,
    began_after,
    compared,
)
from jupyter_mntrain.cluster.acceptance.documented import COMMANDS
from jupyter_mntrain.cluster.acceptance.trial_jobs import (
    FIRST_STEPS,
    MOST_STEPS,
    steps_for,
)
from jupyter_mntrain.metrics.acceptance.acceptance_report import ResumedRun, ScalingPoint
from jupyter_mntrain.model.errors import RefusedError
from jupyter_mntrain.model.records.job import TRAINER, JobSpec, Participant
from jupyter_mntrain.recipe.stored import recipe_of, values_of
from tests.standin.training import sample_job
from tests.test_house import ROOT

UNBROKEN = {step: StepSums(1 / step, 2 / step) for step in range(1, 11)}


def test_losses_are_compared_to_the_last_bit_and_only_after_the_checkpoint() -> None:
    resumed = {step: UNBROKEN[step] for step in range(5, 11)}
    found = compared(ResumedRun(), UNBROKEN, resumed, 4)
    assert (found.compared, found.different, found.largest_difference) == (6, (), 0.0)
    resumed[7] = StepSums(1 / 7 + 1e-12, 2 / 7)
    found = compared(ResumedRun(), UNBROKEN, {**resumed, 3: StepSums(9.0)}, 4)
    assert (found.different, found.different_norms) == ((7,), ())
    assert 0 < found.largest_difference < 2e-12


def test_gradient_norms_tell_since_when_runs_differ() -> None:
    resumed = {step: UNBROKEN[step] for step in range(5, 11)}
    resumed[6] = StepSums(1 / 6, 2 / 6 + 1e-9)
    found = compared(ResumedRun(), UNBROKEN, resumed, 4)
    assert (found.different, found.different_norms) == ((), (6,))


class RefusedJobs:
    """Trial jobs that are all refused."""

    def __init__(self) -> None:
        self.launches: list[JobSpec] = []

    def launch(self, spec: JobSpec) -> None:
        self.launches.append(spec)
        raise RefusedError("no", fix="none")


def test_the_broken_run_has_the_plan_of_the_unbroken_one() -> None:
    spec = JobSpec(
        entry=("-m", TRAINER, "recipe.toml", "--set", "train.seed=7"),
        files={"recipe.toml": '[model]\npreset = "llama-tiny"\n[pipeline]\nmicrobatches = 4\n'},
        participants=(Participant("a"), Participant("b")),
    )
    chosen = {
        "pipeline.schedule": "eager-zero-bubble",
        "pipeline.split": "[1, 3]",
        "memory.checkpointing": "full",
        "model.dtype": "float32",
        "memory.compile": "false",
    }
    jobs: Any = RefusedJobs()
    unbroken = msgspec.structs.replace(spec, files={}, chosen=chosen)  # as nodes tell it
    BrokenJob(jobs, spec, 20, unbroken).start()
    [launched] = jobs.launches
    recipe = recipe_of(launched)
    assert recipe is not None
    assert values_of(recipe).items() >= {**chosen, "pipeline.microbatches": "4"}.items()
    assert (recipe.train.seed, recipe.train.steps, recipe.checkpoint.interval_steps) == (7, 20, 5)


def test_a_lease_that_stays_is_counted_and_one_that_is_given_back_is_not() -> None:
    watch = HeldLeases()
    for now_s, count in ((0.0, 2), (1.0, 0), (2.0, 1), (2.0 + MOMENT_S, 1)):
        watch.see(count, now_s)
    assert watch.most == 0
    watch.see(1, 2.1 + MOMENT_S)
    assert watch.most == 1


def test_a_job_waited_if_every_part_began_after_the_others_end() -> None:
    view = sample_job({"wopr": 1, "muthur": 1}).history.view
    ended = [msgspec.structs.replace(one, ended_s=100.0) for one in view.parts]
    earlier = msgspec.structs.replace(view, parts=tuple(ended))

    def later(*starts: float | None) -> bool:
        parts = [
            msgspec.structs.replace(one, started_s=start)
            for one, start in zip(view.parts, starts, strict=True)
        ]
        return began_after(msgspec.structs.replace(view, parts=tuple(parts)), earlier)

    assert later(100.0, 101.0)
    assert not later(100.0, 99.0)
    assert not later(100.0, None)


def test_steps_take_long_enough_and_no_longer() -> None:
    assert steps_for(ScalingPoint(("a",), 1, step_s=0.3), 2) == 100
    assert steps_for(ScalingPoint(("a",), 1, step_s=1e-4), 2) == MOST_STEPS
    assert steps_for(ScalingPoint(("a",), 1, step_s=60.0), 2) == FIRST_STEPS
    assert steps_for(ScalingPoint(("a",), 1), 2) == FIRST_STEPS


def test_the_documented_commands_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "by_hand.md").read_text()
    shown = [line.strip() for line in page.splitlines() if line.strip().startswith("mntrain ")]
    assert shown[shown.index(COMMANDS[0]) :] == list(COMMANDS)
