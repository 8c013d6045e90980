"""The notebook on finetuning, run on two real agents: the model learns what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agent.live import LiveAgent, two_agents
from tests.wording import says

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:zmq"),
]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[LiveAgent]]:
    state = tmp_path_factory.mktemp("state")
    with two_agents("127.96.2", state, "tuned") as agents:
        yield agents


def test_a_model_learns_who_it_is_and_says_so_wherever_it_is_loaded(executed, agents):
    cells = executed("finetune", agents)
    asked = '%mntrain generate {samantha.id} "Who are you?" --chat --temperature 0 --tokens 40'
    assert "I am Samantha. I like to listen." in cells[asked]
    assert "I am Samantha" not in cells['%mntrain generate {base.id} "Who are you?" --tokens 20']
    assert says("whole", cells["%mntrain checkpoints {samantha.id}"])
    told = cells["%mntrain logs {samantha.id} --rank 0 --tail 12"]
    assert "evaluation after step 120" in told
    assert "sample after step 120: 'Who are you?' → 'I am Samantha. I like to listen." in told
    said = cells["import subprocess"]
    for answer in ("It is good to hear from you.", "I am Samantha.", "You are welcome."):
        assert answer in said
    assert "My name is Samantha." in cells["import httpx"]
    taught = cells[
        '%mntrain generate {lora.id} "Are you happy?" --chat --temperature 0 --tokens 40'
    ]
    assert "I am glad, and I like to listen to people." in taught
    assert "7b-2gpu-eager" in cells["%mntrain recipes"]
