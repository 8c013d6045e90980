"""``mntrain agent drain``, ``resume`` and ``offer``: what is typed, stored and told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.daemon.owner import change_availability
from jupyter_mntrain.agent.membership.availability import FILE, NodeAvailability
from jupyter_mntrain.agent.options import parse_options
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.node import Availability
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.nodes import gpu
from tests.wording import says, wording


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuReader, "read", lambda _: (gpu(0), gpu(1)))


def say(state: Path, *words: str) -> str:
    options = parse_options([*words, "--state-dir", str(state)])
    assert options.owner is not None
    return change_availability(options.owner, state, "node2")[0]


def audited(state: Path) -> list[str]:
    return [json.loads(line)["what"] for line in (state / "audit.log").read_text().splitlines()]


def test_a_drain_is_stored_for_this_user_alone_and_taken_back(tmp_path: Path) -> None:
    text = say(tmp_path, "drain", "--until", "2h", "--reason", "an exam")
    assert says("its owner drained it until", text)
    assert "an exam" in text
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    word = NodeAvailability(tmp_path)
    assert word.refusal is not None
    assert word.refusal.kind is Kind.DRAINED
    drain = word.availability.drain
    assert drain is not None
    assert not drain.ends_jobs
    assert drain.until_s == drain.since_s + 7200
    say(tmp_path, "drain", "--now")
    assert NodeAvailability(tmp_path).availability.drain.ends_jobs  # type: ignore[union-attr]
    say(tmp_path, "drain", "--off")
    assert NodeAvailability(tmp_path).refusal is None
    assert audited(tmp_path) == ["drain", "drain", "resume"]


def test_a_drain_ends_by_itself(tmp_path: Path) -> None:
    say(tmp_path, "drain", "--until", "30m")
    now_s = time.time()
    assert NodeAvailability(tmp_path, clock=lambda: now_s + 1790).refusal is not None
    assert NodeAvailability(tmp_path, clock=lambda: now_s + 1810).refusal is None


def test_only_what_is_given_changes_and_all_is_lent_again(tmp_path: Path) -> None:
    say(tmp_path, "offer", "--hours", "Mon-Fri  19:00-07:00", "--strict")
    say(tmp_path, "drain")
    text = say(tmp_path, "offer", "--gpus", "1,0,1", "--memory", "20GiB")
    assert "0, 1, 20 GiB of each" in text
    availability = NodeAvailability(tmp_path).availability
    assert (availability.hours, availability.is_strict) == ("Mon-Fri 19:00-07:00", True)
    assert (availability.gpus, availability.memory_bytes) == ((0, 1), 20 << 30)
    before = (tmp_path / "audit.log").read_text()
    say(tmp_path, "offer")
    assert (tmp_path / "audit.log").read_text() == before, "to look changes nothing"
    say(tmp_path, "offer", "--hours", "always", "--gpus", "none", "--memory", "all")
    assert NodeAvailability(tmp_path).availability == Availability(
        gpus=(), drain=availability.drain
    )
    say(tmp_path, "offer", "--all")
    assert NodeAvailability(tmp_path).availability == Availability(drain=availability.drain), (
        "drained all the same"
    )


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["drain", "--until", "25:00"], "is not a time of day"),
        (["drain", "--until", "soon"], "neither a time of day nor a duration"),
        (["drain", "--until", "0s"], "neither a time of day nor a duration"),
        (["drain", "--reason", "a\nb"], "the reason is not one line of text"),
        (["drain", "--off", "--now"], "--off cannot be combined with other options"),
        (["offer", "--hours", ""], "no hours are given"),
        (["offer", "--gpus", "0,x"], "is not a list of GPUs"),
        (["offer", "--gpus", "0,7"], "this machine has no GPU 7; it has GPUs 0, 1"),
        (["offer", "--memory", "much"], "is not a size"),
        (["offer", "--memory", "25GiB"], "no GPU here has 25 GiB: the largest has 24.0 GiB"),
        (["offer", "--gpus", "none", "--memory", "1GiB"], "no GPU is offered"),
        (["offer", "--strict"], "--strict needs hours"),
        (["offer", "--all", "--gpus", "0"], "--all cannot be combined with other options"),
    ],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, words: list[str], cause: str) -> None:
    with pytest.raises(SpecError) as caught:
        say(tmp_path, *words)
    assert says(cause, caught.value.cause)
    assert caught.value.fix
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"gpus": "0"}', '{"hours": "now"}', "\udc00"])
def test_while_it_cannot_be_read_nothing_is_offered(tmp_path: Path, content: str) -> None:
    word = NodeAvailability(tmp_path)
    (tmp_path / FILE).write_bytes(content.encode(errors="surrogatepass"))
    word.look()
    refusal = word.refusal
    assert refusal is not None
    assert refusal.kind is Kind.NOT_OFFERED
    assert says("offer --all", refusal.fix)
    with pytest.raises(SpecError, match=wording("offer --all")):
        say(tmp_path, "offer", "--gpus", "0")
    say(tmp_path, "offer", "--all")
    word.look()
    assert word.refusal is None
