"""``trace``: a job of two nodes keeps its plan, and shows a step of its own next to it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from jupyter_mntrain.cli import main
from tests.agent.live import LiveAgent
from tests.wording import says

RECIPE = """
[model]
preset = "llama-tiny"
[data]
source = "{text}"
vocabulary_size = 275
sequence_length = 32
[pipeline]
schedule = "eager-1f1b"
microbatches = 4
[train]
steps = 12
batch_size = 8
"""


@pytest.mark.slow
def test_a_step_of_a_real_job_is_seen_beside_its_prediction(
    agents: list[LiveAgent], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [word for agent in agents for word in ("--agent", agent.where)]

    def say(*words: str) -> str:
        code = main(["--cluster", agents[0].cluster, *where, *words])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    (tmp_path / "text.txt").write_text("The agent on each node launches one stage. " * 400)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(text=tmp_path / "text.txt"))
    say("launch", str(recipe), "--wait", "--timeout", "200")
    status = json.loads(say("status", "--json"))
    assert status["predicted_step_s"] > 0
    assert status["step_s"] > 0
    told = json.loads(say("trace", "--json"))
    assert told["recorded_steps"] == [3, 5, 10]
    for name in ("predicted", "recorded"):
        for spans in told[name]["ranks"]:
            forward = [one["microbatch"] for one in spans if one["kind"] == "F"]
            assert forward == [0, 1, 2, 3], name
    assert told["recorded"]["step"] == 10
    shown = say("trace", "--step", "5")
    assert says("predicted", shown)
    assert says("step 5", shown)
    say("trace", "--output", str(tmp_path / "step.json"))
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    passes = [one for one in events if one.get("cat") in {"F", "B"}]
    assert len(passes) == 2 * 2 * 2 * 4, "two steps of two ranks, four times forth and back"
    for pid in {one["pid"] for one in passes}:
        own = [one for one in passes if one["pid"] == pid]
        assert all(one["ts"] + one["dur"] <= after["ts"] + 0.01 for one, after in pairwise(own))
