"""``mntrain agent drain``, ``resume`` and ``lend``: what is typed, stored and told."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_mntrain.agent.daemon.owner import change_lending
from jupyter_mntrain.agent.membership.lending import FILE, OwnersWord
from jupyter_mntrain.agent.options import parse_options
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.lending import Lending
from jupyter_mntrain.telemetry.gpus import GpuReader
from tests.standin.nodes import gpu
from tests.wording import says, wording


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuReader, "read", lambda _: (gpu(0), gpu(1)))


def say(state: Path, *words: str) -> str:
    options = parse_options([*words, "--state-dir", str(state)])
    assert options.owner is not None
    return change_lending(options.owner, state, "node2")[0]


def audited(state: Path) -> list[str]:
    return [json.loads(line)["what"] for line in (state / "audit.log").read_text().splitlines()]


def test_a_drain_is_stored_for_this_user_alone_and_taken_back(tmp_path: Path) -> None:
    text = say(tmp_path, "drain", "--until", "2h", "--reason", "an exam")
    assert says("its owner drained it until", text)
    assert "an exam" in text
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    word = OwnersWord(tmp_path)
    assert word.refusal is not None
    assert word.refusal.kind is Kind.DRAINED
    drain = word.lending.drain
    assert drain is not None
    assert not drain.ends_jobs
    assert drain.until_s == drain.since_s + 7200
    say(tmp_path, "drain", "--now")
    assert OwnersWord(tmp_path).lending.drain.ends_jobs  # type: ignore[union-attr]
    say(tmp_path, "drain", "--off")
    assert OwnersWord(tmp_path).refusal is None
    assert audited(tmp_path) == ["drain", "drain", "resume"]


def test_a_drain_ends_by_itself(tmp_path: Path) -> None:
    say(tmp_path, "drain", "--until", "30m")
    now_s = time.time()
    assert OwnersWord(tmp_path, clock=lambda: now_s + 1790).refusal is not None
    assert OwnersWord(tmp_path, clock=lambda: now_s + 1810).refusal is None


def test_only_what_is_given_changes_and_all_is_lent_again(tmp_path: Path) -> None:
    say(tmp_path, "lend", "--hours", "Mon-Fri  19:00-07:00", "--strict")
    say(tmp_path, "drain")
    text = say(tmp_path, "lend", "--gpus", "1,0,1", "--memory", "20GiB")
    assert "0, 1, 20 GiB of each" in text
    lending = OwnersWord(tmp_path).lending
    assert (lending.hours, lending.is_strict) == ("Mon-Fri 19:00-07:00", True)
    assert (lending.gpus, lending.memory_bytes) == ((0, 1), 20 << 30)
    before = (tmp_path / "audit.log").read_text()
    say(tmp_path, "lend")
    assert (tmp_path / "audit.log").read_text() == before, "to look changes nothing"
    say(tmp_path, "lend", "--hours", "always", "--gpus", "none", "--memory", "all")
    assert OwnersWord(tmp_path).lending == Lending(gpus=(), drain=lending.drain)
    say(tmp_path, "lend", "--all")
    assert OwnersWord(tmp_path).lending == Lending(drain=lending.drain), "drained all the same"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["drain", "--until", "25:00"], "is not a time of day"),
        (["drain", "--until", "soon"], "neither a time of day nor a duration"),
        (["drain", "--until", "0s"], "neither a time of day nor a duration"),
        (["drain", "--reason", "a\nb"], "the reason is not one line of text"),
        (["drain", "--off", "--now"], "--off goes with no other option"),
        (["lend", "--hours", ""], "no hours are given"),
        (["lend", "--gpus", "0,x"], "is no list of GPUs"),
        (["lend", "--gpus", "0,7"], "this machine has no GPU 7; it has GPUs 0, 1"),
        (["lend", "--memory", "much"], "is not a size"),
        (["lend", "--memory", "25GiB"], "no GPU here has 25 GiB: the largest has 24.0 GiB"),
        (["lend", "--gpus", "none", "--memory", "1GiB"], "no GPU is lent"),
        (["lend", "--strict"], "--strict needs hours"),
        (["lend", "--all", "--gpus", "0"], "--all goes with no other option"),
    ],
)
def test_what_cannot_be_changes_nothing(tmp_path: Path, words: list[str], cause: str) -> None:
    with pytest.raises(SpecError) as caught:
        say(tmp_path, *words)
    assert says(cause, caught.value.cause)
    assert caught.value.fix
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"gpus": "0"}', '{"hours": "now"}', "\udc00"])
def test_while_it_cannot_be_read_nothing_is_lent(tmp_path: Path, content: str) -> None:
    word = OwnersWord(tmp_path)
    (tmp_path / FILE).write_bytes(content.encode(errors="surrogatepass"))
    word.look()
    refusal = word.refusal
    assert refusal is not None
    assert refusal.kind is Kind.NOT_LENT
    assert says("lend --all", refusal.fix)
    with pytest.raises(SpecError, match=wording("lend --all")):
        say(tmp_path, "lend", "--gpus", "0")
    say(tmp_path, "lend", "--all")
    word.look()
    assert word.refusal is None
