"""The submit panel without widgets: what is chosen, what follows, what is launched."""

from __future__ import annotations

import contextlib
import json
import shlex
import stat
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.cluster import NodeView
from jupyter_mntrain.cluster.progress import SILENT
from jupyter_mntrain.model.errors import MntrainError, RefusedError, SpecError
from jupyter_mntrain.model.records.node import GpuProcess
from jupyter_mntrain.plan import parse_member
from jupyter_mntrain.plan.traffic import ring_traffic, step_traffic
from jupyter_mntrain.verbs import run_words
from jupyter_mntrain.verbs.panel import Choices, Form, FormRow, NodeChoice, Panel
from jupyter_mntrain.verbs.panel.choices import launch_words, member_text
from jupyter_mntrain.verbs.panel.last_choices import MOST_RECIPES, Memory
from tests.verbs.samples import GIGABIT
from tests.verbs.stand_in import StandInCluster, make_context, node, silent

RECIPE = """
[model]
preset = "llama-tiny"

[pipeline]
microbatches = 6

[train]
batch_size = 12
"""
SCRIPT = "print('hello')\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\n")
    (tmp_path / "broken.toml").write_text("[model\n")
    return tmp_path


@pytest.fixture
def two() -> StandInCluster:
    return StandInCluster([node("muthur", 2, gpus=1), node("wopr", 1, gpus=2)])


@pytest.fixture
def panel(two: StandInCluster, here: Path) -> Panel:
    return open_panel(two, here, "small.toml")


def open_panel(
    cluster: StandInCluster, here: Path, target: str | None = None, **changes: Any
) -> Panel:
    context = make_context(cluster, directory=here, **changes)
    memory = Memory(here / "state" / "panel.json")
    return Panel(context, Namespace(cluster=None, agent=None), target=target, memory=memory)


def choose(panel: Panel, **fields: Any) -> Form:
    panel.choices = msgspec.structs.replace(panel.choices, **fields)
    return panel.form()


def row(form: Form, name: str) -> FormRow:
    return next(one for one in form.rows if one.name == name)


def words(form: Form) -> str:
    checks = [check for one in form.rows for check in one.checks] + list(form.settings)
    return " | ".join(check.text for check in checks)


# Choices


@pytest.mark.parametrize(
    ("gpus", "interface", "text"),
    [
        ("", None, "a"),
        ("2", None, "a:2"),
        ("", "eth1", "a::eth1"),
        ("gpu1", None, "a:gpu1"),
        ("0, 2", "eth1", "a:gpu0,2:eth1"),
        ("GPUs 0,1", None, "a:gpu0,1"),
    ],
)
def test_a_row_is_a_member_of_a_launch(gpus: str, interface: str | None, text: str) -> None:
    assert member_text("a", NodeChoice(gpus=gpus, interface=interface)) == text
    assert parse_member(text).node == "a"


@given(st.text(max_size=12))
def test_whatever_stands_in_the_gpus_field_is_a_member_or_one_clean_line(text: str) -> None:
    with contextlib.suppress(SpecError):
        member = parse_member(member_text("a", NodeChoice(gpus=text)))
        assert (member.node, member.interface) == ("a", None)


def test_choices_become_the_words_of_launch() -> None:
    chosen = Choices(
        port="29500",
        schedule="gpipe",
        microbatches=4,
        changes='train.steps=5 model.preset="llama-8m"',
        environment="A=1 B='two words'",
        restart="failed or stalled",
    )
    assert launch_words(chosen, ["a:2", "b"], head="b", target="r.toml") == [
        "r.toml", "--member", "a:2", "--member", "b", "--head", "b", "--port", "29500",
        "--restarts", "3", "--on-stall", "abort", "--env", "A=1", "--env", "B=two words",
        "--set", 'pipeline.schedule="gpipe"', "--set", "pipeline.microbatches=4",
        "--set", "train.steps=5", "--set", "model.preset=llama-8m",
    ]  # fmt: skip


# Rows and checks


def test_nothing_chosen_is_what_a_launch_without_members_takes(panel: Panel) -> None:
    form = panel.form()
    assert form.members == ("muthur", "wopr")
    assert form.blocked is None
    assert form.summary == "3 ranks on 2 nodes."
    assert [one.is_head for one in form.rows] == [True, False]
    assert row(form, "wopr").gpu_hint == "2 of 2 idle"
    assert row(form, "wopr").gpu_options == ("2", "1", "gpu0", "gpu1")
    assert row(form, "wopr").interfaces[0] == ("auto: eno1, 941\u00a0Mbit/s", None)
    assert [check.text for one in form.rows for check in one.checks] == ["4 checks passed"] * 2


def test_nodes_without_gpus_are_left_out_where_others_have_some(here: Path) -> None:
    cluster = StandInCluster([node("a", 1), node("b", 2, gpus=1)])
    assert open_panel(cluster, here, "small.toml").form().members == ("b",)
    assert open_panel(StandInCluster([node("a", 1)]), here).form().members == ("a",)


def test_a_node_that_does_not_answer_cannot_be_chosen_and_says_why(here: Path) -> None:
    lost = silent("10.0.0.9:8765", "connection refused. Fix: start its agent.")
    cluster = StandInCluster([node("a", 1), node("b", 2, liveness="suspect"), lost])
    panel = open_panel(cluster, here, "small.toml")
    form = panel.form()
    assert [one.can_be_used for one in form.rows] == [True, False, False]
    assert "Silent for 1" in words(form)
    assert "It can be chosen when it answers again." in words(form)
    assert "Connection refused. Fix: start its agent." in words(form)
    assert form.blocked is None
    form = choose(panel, nodes={"b": NodeChoice(is_used=True)})
    assert form.blocked is not None
    assert form.blocked.startswith("b: Silent for")
    fix = row(form, "b").checks[0].fix
    assert fix is not None
    panel.choices = fix.choices
    assert panel.form().blocked is None


def test_a_node_of_the_last_time_that_is_gone_is_not_forgotten_in_silence(panel: Panel) -> None:
    form = choose(panel, nodes={"joshua": NodeChoice(is_used=True)})
    assert form.blocked == "joshua: Took part the last time and is not there now."
    assert row(form, "joshua").checks[0].fix is not None


def test_what_cannot_be_had_stands_at_its_row_with_a_button(panel: Panel) -> None:
    form = choose(panel, nodes={"wopr": NodeChoice(gpus="3"), "muthur": NodeChoice(gpus="x")})
    (wopr,) = row(form, "wopr").checks
    assert wopr.text == "has 2 GPUs, 3 requested. Fix: ask for wopr:2 at most."
    assert wopr.fix is not None
    assert wopr.fix.label == "Use 2 idle GPUs"
    assert "neither a number nor GPU ids" in row(form, "muthur").checks[0].text
    assert form.blocked is not None
    panel.choices = msgspec.structs.replace(
        wopr.fix.choices, nodes=wopr.fix.choices.nodes | {"muthur": NodeChoice()}
    )
    assert panel.form().blocked is None


def test_interfaces_that_do_not_meet_block_the_launch(panel: Panel) -> None:
    form = choose(panel, nodes={"wopr": NodeChoice(interface="lo")})
    assert form.blocked is not None
    assert "no network is shared" in form.blocked
    form = choose(panel, nodes={"wopr": NodeChoice(interface="eth9")})
    assert "has no interface 'eth9'" in words(form)
    assert ("eth9, not there now", "eth9") in row(form, "wopr").interfaces


def test_a_version_that_differs_is_told_with_what_mends_it_and_may_be_accepted(
    here: Path,
) -> None:
    nodes = [node("a", 1), node("b", 2), node("c", 3, torch="2.12.0")]
    panel = open_panel(StandInCluster(nodes), here, "small.toml")
    (check,) = row(panel.form(), "c").checks
    assert check.level == "error"
    assert check.text == (
        "torch 2.12.0, the others have 2.13.0. Fix: pip install torch==2.13.0 on c."
    )
    assert panel.form().blocked == "c: torch 2.12.0, the others have 2.13.0."
    assert check.fix is not None
    assert check.fix.label == "Launch all the same"
    panel.choices = check.fix.choices
    form = panel.form()
    assert [one.level for one in row(form, "c").checks] == ["warning"]
    assert form.blocked is None
    assert form.summary == "3 ranks on 3 nodes. 1 warning at c."
    assert "--mixed-versions" in panel.command(form)


def test_busy_gpus_are_no_error_for_a_job_that_may_wait(here: Path) -> None:
    cluster = StandInCluster([busy(node("a", 1, gpus=1)), node("b", 2, gpus=1)])
    panel = open_panel(cluster, here, "small.toml")
    panel.choices = Choices(nodes={name: NodeChoice(is_used=True, gpus="1") for name in "ab"})
    assert "GPU 0 busy with kim (pid 7)" in (panel.form().blocked or "")
    panel.choices = msgspec.structs.replace(panel.choices, waits=True)
    form = panel.form()
    assert form.blocked is None
    assert panel.command(form).endswith("--queue")
    panel.launch(form, SILENT)
    assert [spec.world_size for spec in cluster.queued] == [2]
    assert cluster.launches == []


def busy(view: NodeView) -> NodeView:
    assert view.info is not None
    gpus = [
        msgspec.structs.replace(gpu, processes=(GpuProcess(pid=7, user="kim"),))
        for gpu in view.info.inventory.gpus
    ]
    inventory = msgspec.structs.replace(view.info.inventory, gpus=tuple(gpus))
    info = msgspec.structs.replace(view.info, inventory=inventory)
    return msgspec.structs.replace(view, info=info)


def test_a_recipe_that_does_not_fit_so_many_ranks_blocks(panel: Panel) -> None:
    form = choose(panel, microbatches=2, schedule="1f1b")
    assert form.blocked == "pipeline.microbatches = 2: fewer than the 3 pipeline stages."
    assert "Fix: use 3 or more" in form.settings[0].text
    form = choose(panel, microbatches=None, changes="train.step=4")
    assert "did you mean steps" in form.settings[0].text
    form = choose(panel, changes="'open")
    assert form.settings[0].text == '"\'open": no closing quotation. Fix: close the quote.'
    form = choose(panel, changes="", environment="NOVALUE")
    assert "'NOVALUE' is not of the form NAME=VALUE" in form.settings[0].text


def test_a_port_is_looked_at_on_the_head_and_a_free_one_offered(
    panel: Panel, two: StandInCluster
) -> None:
    two.taken_ports = {29500}
    form = choose(panel, port="29500")
    assert form.blocked is None
    assert panel.look(form)
    assert two.looked_at == [("muthur", 29500, "eno1")]
    form = panel.form()
    assert form.blocked == "muthur: Port 29500 on 10.0.0.1 is taken by jupyter (pid 7)."
    assert not panel.look(form)  # asked a moment ago
    assert len(two.looked_at) == 1
    fix = row(form, "muthur").checks[0].fix
    assert fix is not None
    assert fix.label == "Use 29501"
    panel.choices = fix.choices
    assert panel.look(panel.form())
    assert panel.form().blocked is None
    for text in ("0", "99999", "ssh", "-1"):
        assert f"{text!r} is not a port" in words(choose(panel, port=text))
        panel.look(panel.form())
    assert len(two.looked_at) == 2


def test_nobody_there_and_nobody_chosen_say_what_to_do(here: Path, panel: Panel) -> None:
    nobody = open_panel(StandInCluster(), here, "small.toml").form()
    assert nobody.blocked.startswith("No node answers. Invite one: %mntrain invite.")
    form = choose(panel, others_take_part=False)
    assert form.blocked == "No node takes part: choose one or more."


# Predictions


def test_the_bubble_and_the_bytes_on_each_link_are_known_before_the_start(panel: Panel) -> None:
    prediction = panel.form().prediction
    assert prediction is not None
    assert (prediction.ranks, prediction.slots, prediction.empty) == (3, 8, 2)
    assert prediction.bubble == pytest.approx(2 / 8)
    assert prediction.links is not None
    forward, back = prediction.links
    assert (forward.sender, forward.receiver) == ("muthur", "wopr")
    assert (back.sender, back.receiver) == ("wopr", "muthur")
    # One boundary crosses nodes: 12 sequences of 256 tokens, 64 wide, 4 bytes each.
    assert forward.bytes_per_step == 12 * 256 * 64 * 4
    assert forward.seconds == pytest.approx(forward.bytes_per_step / GIGABIT.bytes_per_s)


def test_interleaved_stages_cross_again_and_wrap_around() -> None:
    assert step_traffic(["a", "a", "b"], 1, 10.0) == {("a", "b"): 10.0, ("b", "a"): 10.0}
    assert step_traffic(["a", "b"], 2, 10.0) == {("a", "b"): 30.0, ("b", "a"): 30.0}
    assert step_traffic(["a", "a"], 2, 10.0) == {}


def test_replicas_on_different_nodes_send_their_gradients_round() -> None:
    assert ring_traffic(["a", "a"], 10.0) == {}
    assert ring_traffic(["a", "b"], 10.0) == {("a", "b"): 10.0, ("b", "a"): 10.0}
    assert ring_traffic(["a", "a", "b"], 30.0) == {("a", "b"): 40.0, ("b", "a"): 40.0}


def test_pipelines_side_by_side_send_their_share_each(panel: Panel) -> None:
    changes = "data_parallel.replicas=3\nmodel.tie_embeddings=true"
    prediction = choose(panel, changes=changes).prediction
    assert prediction is not None
    assert (prediction.ranks, prediction.bubble) == (1, 0)
    assert prediction.links is not None
    there, back = prediction.links
    # No activations, but the gradients of the whole model: four layers of 64 x 64 twice, 64 x 32
    # twice and 64 x 176 thrice, two norms each and one at the end, and a vocabulary of 2048.
    weights = 4 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176) + 9 * 64 + 2048 * 64
    assert there.bytes_per_step == back.bytes_per_step == pytest.approx(weights * 4 * 2 * 2 / 3)


# Launching


@pytest.mark.parametrize(
    ("target", "choices"),
    [
        ("small.toml", {}),
        ("small.toml", {"port": "29555", "head": "wopr", "environment": "A=1"}),
        (
            "small.toml",
            {"schedule": "interleaved-1f1b", "nodes": {"wopr": NodeChoice(gpus="1")}},
        ),
        ("small.toml", {"nodes": {"wopr": NodeChoice(gpus="gpu1", interface="eno1")}}),
        (
            "small.toml",
            {"nodes": {"muthur": NodeChoice(is_used=False)}, "changes": "train.steps=7"},
        ),
        ("llama-tiny", {"microbatches": 4}),
        ("train.py", {}),
    ],
)
def test_panel_and_command_line_start_the_same_spec(
    two: StandInCluster, here: Path, target: str, choices: dict[str, Any]
) -> None:
    panel = open_panel(two, here, target)
    form = choose(panel, **choices)
    assert form.blocked is None
    panel.launch(form, SILENT)
    *file, line = panel.command(form).splitlines()
    cell = panel.target.cell
    assert bool(file) == (cell is not None)
    command = shlex.split(line.replace("llama-tiny.toml ", ""))
    run_words(command[1:], make_context(two, directory=here, cell=cell))
    assert two.launches[0] == two.launches[1]


def test_arguments_of_a_script_go_along(two: StandInCluster, here: Path) -> None:
    panel = open_panel(two, here, "train.py", arguments=("--lr", "0.1"))
    panel.launch(panel.form(), SILENT)
    assert two.launches[0].entry == ("train.py", "--lr", "0.1")
    assert panel.command(panel.form()).endswith("-- --lr 0.1")


def test_a_refusal_starts_nothing_and_is_not_remembered(
    panel: Panel, two: StandInCluster, here: Path
) -> None:
    two.refuses = RefusedError("GPU 0 was taken", fix="wait", node="wopr")
    with pytest.raises(MntrainError, match="wopr: GPU 0 was taken"):
        panel.launch(panel.form(), SILENT)
    assert open_panel(two, here, "small.toml").note == ""


# Memory


def test_the_last_choices_of_each_recipe_come_back(two: StandInCluster, here: Path) -> None:
    panel = open_panel(two, here, "small.toml")
    form = choose(panel, nodes={"muthur": NodeChoice(is_used=False)}, port="29555")
    panel.launch(form, SILENT)
    assert panel.note.startswith("as launched at ")
    again = open_panel(two, here)  # and it is the one launched last
    assert again.target.label == "small.toml"
    assert again.form().members == ("wopr",)
    assert again.choices.port == "29555"
    assert open_panel(two, here, "llama-8m").choices == Choices()
    # A node that has come since is not meant.
    two.become(node("wopr", 1, gpus=2), node("joshua", 5, gpus=4))
    assert again.form().members == ("wopr",)
    again.reset()
    assert again.form().members == ("wopr", "joshua")
    assert open_panel(two, here, "small.toml").choices == Choices()


def test_memory_is_private_bounded_and_its_damage_is_said(two: StandInCluster, here: Path) -> None:
    memory = Memory(here / "state" / "panel.json")
    for number in range(MOST_RECIPES + 3):
        memory.remember(f"r{number}", Choices(port=str(number + 1)), now_s=float(number))
    assert stat.S_IMODE(memory.path.stat().st_mode) == 0o600
    assert len(memory.all()) == MOST_RECIPES
    assert next(iter(memory.all())) == f"r{MOST_RECIPES + 2}"
    memory.path.write_text("{")
    panel = open_panel(two, here, "small.toml")
    assert "cannot read the panel's last choices" in panel.note
    assert panel.form().blocked is None
    job = panel.launch(panel.form(), SILENT)
    assert job.id
    assert "could not be kept" in panel.note


# The verb


def test_targets_are_recipes_here_then_presets(panel: Panel) -> None:
    labels = [target.label for target in panel.targets]
    assert labels[:3] == ["small.toml", "preset llama-8m", "preset llama-tiny"]
    assert "pyproject.toml" not in labels
    assert len(labels) == len(set(labels))


def test_without_a_notebook_the_panel_is_text_with_the_command(do, here, text) -> None:
    outcome = do("panel", "small.toml", directory=here)
    said = text(outcome.renderable)
    assert "The clickable panel needs a notebook; this is its text form." in said
    assert "mntrain launch small.toml --member muthur --member wopr --member hal" in said
    assert json.loads(json.dumps(outcome.data))["command"].startswith("mntrain launch")


def test_the_command_names_the_cluster_that_was_named(do, here) -> None:
    outcome = do("--cluster", "lab", "panel", "small.toml", "--agent", "10.0.0.1", directory=here)
    command = outcome.data["command"]
    assert command.startswith("mntrain --cluster lab --agent 10.0.0.1 launch small.toml --member")


def test_what_is_neither_file_nor_preset_is_said(do, here) -> None:
    with pytest.raises(SpecError, match=r"did you mean small\.toml"):
        do("panel", "smal.toml", directory=here)
    with pytest.raises(SpecError, match="did you mean llama-8m"):
        do("panel", "lama-8m", directory=here)
