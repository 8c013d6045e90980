"""Resume: what a run goes on from, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_mntrain.model.errors import RefusedError, SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.lifecycle.loss_line import LossLine
from jupyter_mntrain.model.program import Program, program_of
from jupyter_mntrain.model.records.checkpoint import (
    HeldCheckpoint,
    Manifest,
    NodeCheckpoints,
    RunCheckpoint,
    RunCheckpoints,
    UnfinishedSave,
)
from jupyter_mntrain.model.records.job import TRAINER, Earlier, JobSpec, JobState, Restart
from jupyter_mntrain.plan.resume import (
    choose_checkpoint,
    origin_of,
    refuse_finished,
    refuse_running,
    reported_step,
    step_of,
    told_steps,
    whole_checkpoint,
)
from jupyter_mntrain.plan.run_checkpoints import merge_checkpoints
from jupyter_mntrain.recipe.stored import RECIPE_FILE
from tests.plan.views import job_view
from tests.wording import says, wording

RUN = JobId("j-00000001")


def recipe_job(setting: str) -> Program:
    """Of a job that runs a recipe with this setting."""
    entry = ("-m", TRAINER, RECIPE_FILE, "--set", setting)
    return program_of(JobSpec(entry=entry, participants=(), files={RECIPE_FILE: ""}))


def node(*held: tuple[int, int, tuple[int, ...]], unfinished: object = ()) -> NodeCheckpoints:
    """A node that has these (attempt, step, shards) of two ranks."""
    checkpoints = tuple(
        HeldCheckpoint(Manifest(step, attempt, (10, 20), hosts=("node1", "node2")), shards, 5.0)
        for attempt, step, shards in held
    )
    return NodeCheckpoints(RUN, "/c", checkpoints, unfinished)  # type: ignore[arg-type]


def run(silent: tuple[str, ...] = (), **nodes: NodeCheckpoints) -> RunCheckpoints:
    directories = {name: one.directory for name, one in nodes.items()}
    return RunCheckpoints(RUN, merge_checkpoints(nodes), directories, silent=silent)


def chosen(
    listed: RunCheckpoints, *nodes: str, step: int | None = None, shared: bool = False
) -> RunCheckpoint:
    return choose_checkpoint(listed, step, nodes, is_maybe_shared=shared)


BOTH = run(node1=node((1, 200, (0,)), (1, 400, (0,))), node2=node((1, 200, (1,)), (1, 400, (1,))))


def test_the_newest_that_these_nodes_have_is_taken() -> None:
    found = chosen(BOTH, "node1", "node2")
    assert (found.step, found.nodes, found.size_bytes) == (400, {"node1": (0,), "node2": (1,)}, 30)
    assert chosen(BOTH, "node1", "node2", step=200).step == 200
    with pytest.raises(RefusedError) as caught:
        chosen(BOTH, "node1", "node2", step=300)
    assert caught.value.kind is Kind.NO_CHECKPOINT
    assert says("400, 200", caught.value.fix)


def test_where_shards_are_gone_durable_copies_are_named() -> None:
    gone = run(node1=node((1, 400, (0,))))
    for listed in (gone, run()):
        with pytest.raises(RefusedError) as caught:
            choose_checkpoint(listed, None, ("node1",), is_maybe_shared=False, copies="/nas/j-1")
        told = f"resume from its durable copies: mntrain resume {RUN} --from /nas/j-1"
        assert says(told, caught.value.fix)


def test_a_later_attempt_is_newer_than_a_later_step() -> None:
    """A node that was away brings step 600 of an attempt that the run has left behind."""
    listed = run(node1=node((2, 450, (0, 1))), node2=node((1, 600, (0, 1))))
    assert chosen(listed, "node1", "node2").step == 450


def test_missing_shards_are_named_and_never_cost_steps_silently() -> None:
    with pytest.raises(RefusedError) as caught:
        chosen(BOTH, "node1")
    assert says("node2 has the shards of rank 1", caught.value.cause)
    assert says("--member node2:1", caught.value.fix)
    half = run(("node2",), node1=node((1, 200, (0, 1)), (1, 400, (0,))))
    with pytest.raises(RefusedError) as caught:
        chosen(half, "node1", "node2")
    assert says(
        "no node that answers has the shards of rank 1 (saved on node2)", caught.value.cause
    )
    assert says("start node2 again", caught.value.fix)
    assert says("--from 200", caught.value.fix)


def test_in_a_named_directory_a_new_node_may_see_them_too() -> None:
    with pytest.raises(RefusedError):
        chosen(BOTH, "node3")
    assert chosen(BOTH, "node3", shared=True).step == 400
    with pytest.raises(RefusedError):
        chosen(BOTH, "node1", shared=True)


def test_a_save_that_one_node_had_not_published_counts() -> None:
    left = (UnfinishedSave(400, 1, {1: 20}),)
    listed = run(node1=node((1, 400, (0,))), node2=node(unfinished=left))
    assert chosen(listed, "node1", "node2").is_whole
    half = run(
        node1=node((1, 400, (0,))), node2=node(unfinished=(UnfinishedSave(400, 1, {1: 19}),))
    )
    assert half.checkpoints[0].missing == (1,)


def test_without_a_checkpoint_it_says_how_to_start_over() -> None:
    with pytest.raises(RefusedError) as caught:
        chosen(run(("node2",), node1=node()), "node1")
    assert caught.value.kind is Kind.NO_CHECKPOINT
    assert says("start node2 again", caught.value.fix)
    assert says(f"mntrain launch {RUN}", caught.value.fix)


@pytest.mark.parametrize(
    ("states", "restart", "is_refused"),
    [
        (("failed", "failed"), None, False),
        (("succeeded",), None, False),
        (("canceled", "unknown"), None, False),
        (("failed", "running"), None, True),
        (("running", "unknown"), None, True),
        (("unknown", "unknown"), None, True),
        (("pending",), None, True),
        (("failed", "failed"), Restart(number=2, at_s=1.0), True),
    ],
)
def test_a_run_that_may_still_write_is_refused(
    states: tuple[JobState, ...], restart: Restart | None, is_refused: bool
) -> None:
    chain = [job_view(RUN, "failed"), job_view("j-00000002", *states, restart=restart)]
    if not is_refused:
        refuse_running(chain)
        return
    with pytest.raises(RefusedError) as caught:
        refuse_running(chain)
    assert caught.value.kind is Kind.STILL_RUNNING
    assert says("mntrain stop j-00000002", caught.value.fix)


def test_the_best_is_the_one_with_the_lowest_evaluation_loss() -> None:
    losses = {100: 2.0, 200: 1.5, 300: 1.75, 400: None}
    held = tuple(
        HeldCheckpoint(Manifest(step, 1, (5,), evaluation_loss=loss), (0,), saved_s=float(step))
        for step, loss in losses.items()
    )
    merged = merge_checkpoints({"a": NodeCheckpoints(RUN, "/c", held)})
    listed = RunCheckpoints(RUN, merged)
    assert [(one.step, one.evaluation_loss, one.is_best) for one in merged] == [
        (400, None, False),
        (300, 1.75, False),
        (200, 1.5, True),
        (100, 2.0, False),
    ]
    assert (step_of(listed, "best"), step_of(listed, 300)) == (200, 300)
    assert whole_checkpoint(listed, "best").step == 200
    with pytest.raises(RefusedError, match=wording("no checkpoint with an evaluation loss")) as no:
        step_of(RunCheckpoints(RUN, merged[:1]), "best")
    assert no.value.kind is Kind.NO_CHECKPOINT


def test_a_run_without_steps_left_is_refused() -> None:
    refuse_finished(job_view(RUN, "failed"), 400, 399)
    with pytest.raises(SpecError) as caught:
        refuse_finished(job_view(RUN, "succeeded"), 400, 400)
    assert says("--steps 800", caught.value.fix)


def test_the_steps_of_epochs_are_those_that_the_run_told() -> None:
    three, more = recipe_job("train.epochs=3"), recipe_job("train.epochs=5")
    line = LossLine(1, 1, (3.0,), (3.0,), 3.0, 3.0, total_steps=411)
    view = job_view(RUN, "failed")
    assert three.total_steps(three, told_steps(view)) is None
    refuse_finished(view, None, 400)
    told = told_steps(msgspec.structs.replace(view, loss_line=line))
    assert three.total_steps(three, told) == 411
    assert more.total_steps(three, told) is None
    assert recipe_job("train.steps=7").total_steps(three, told) == 7
    script = program_of(JobSpec(entry=("train.py",), participants=()))
    assert script.total_steps(three, told) is None


def test_attempts_are_numbered_on_over_the_chain() -> None:
    first = job_view(RUN, "failed", "failed", number=3, step=70, max_restarts=3)
    origin = origin_of(first, [first], 60, branch=False, path=None)
    assert (origin.run, origin.job, origin.step, origin.reached) == (RUN, RUN, 60, 70)
    assert origin.attempts >= 3 + 3, "a node that does not answer may have led more restarts"
    second = job_view("j-00000002", "failed", submitted_s=1.0, origin=origin)
    assert second.run == RUN
    third = origin_of(second, [first, second], 65, branch=False, path=None)
    assert third.attempts > origin.attempts
    assert (third.run, third.job, third.world_size) == (RUN, second.job_id, 2)
    # The same job resumed once more is later, too.
    again = origin_of(first, [first, second], 65, branch=False, path=None)
    assert again.attempts == third.attempts


def test_a_branch_is_a_run_of_its_own() -> None:
    first = job_view(RUN, "succeeded", step=70)
    origin = origin_of(first, [first], 40, branch=True, path=None)
    branch = job_view("j-00000009", "running", origin=origin)
    assert branch.run == "j-00000009"
    assert (origin.attempts, origin.reached, origin.step) == (0, 40, 40)


def test_the_newest_job_knows_the_newest_checkpoint() -> None:
    first = job_view(RUN, "failed", saved_step=80)
    second = job_view("j-00000002", "failed", submitted_s=1.0, saved_step=60)
    assert reported_step([first, second]) == 60
    assert reported_step([first]) == 80
    waited = job_view(RUN, "failed", earlier=Earlier(world_size=2, saved_step=30))
    assert reported_step([waited]) == 30
    assert reported_step([job_view(RUN, "failed")]) is None


def test_the_newest_whole_one_is_copied_and_a_node_that_has_all_suffices() -> None:
    listed = run(node1=node((1, 200, (0, 1)), (1, 400, (0,))), node2=node((1, 200, (1,))))
    one = whole_checkpoint(listed, None)
    assert (one.step, one.fewest_nodes()) == (200, ("node1",))
    assert set(whole_checkpoint(BOTH, 400).fewest_nodes()) == {"node1", "node2"}
    with pytest.raises(RefusedError) as caught:
        whole_checkpoint(listed, 400)
    assert caught.value.kind is Kind.NO_CHECKPOINT
    assert "node2" in caught.value.fix
    with pytest.raises(RefusedError):
        whole_checkpoint(run(), None)
