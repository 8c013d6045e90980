"""Records: survive JSON; unknown fields are refused in hand-written ones, ignored in others."""

from __future__ import annotations

import importlib
import pkgutil
import types
import typing
from typing import Any

import msgspec
import pytest

import jupyter_mntrain.model
from jupyter_mntrain.model import api, errors, ids
from jupyter_mntrain.model._record import Record, UserRecord
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.ids import Rank
from jupyter_mntrain.model.records import metrics
from jupyter_mntrain.model.records.job import JobSpec, Participant
from jupyter_mntrain.model.records.probes import ProbeTicket


def record_types() -> list[type[Record]]:
    for module in pkgutil.iter_modules(jupyter_mntrain.model.__path__):
        importlib.import_module(f"jupyter_mntrain.model.{module.name}")
    found: set[type[Record]] = set()
    todo: list[type[Record]] = [Record]
    while todo:
        for kind in todo.pop().__subclasses__():
            todo.append(kind)
            found.add(kind)
    own = [
        kind for kind in found - {UserRecord} if kind.__module__.startswith("jupyter_mntrain.model")
    ]
    return sorted(own, key=lambda kind: (kind.__module__, kind.__name__))


def example(kind: Any) -> Any:
    """A value of any annotated type, with every optional field filled."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return arguments[-1]
    if origin is typing.Annotated:
        if examples := getattr(arguments[1], "examples", None):
            return examples[0]
        value = example(arguments[0])
        least, most = (getattr(arguments[1], one, None) for one in ("ge", "le"))
        value = value if least is None else max(value, least)
        return value if most is None else min(value, most)
    if origin in (types.UnionType, typing.Union):
        return example(next(one for one in arguments if one is not types.NoneType))
    if origin is tuple:
        return tuple(example(one) for one in arguments if one is not Ellipsis)
    if origin is dict:
        return {example(arguments[0]): example(arguments[1])}
    if isinstance(kind, typing.NewType):
        return example(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        return kind(**{field.name: example(field.type) for field in fields})
    if kind is Kind:
        return Kind.BUSY
    plain = {str: "text \u2028 ünï", bytes: b"\0\xff", int: 7, float: 1.5, bool: True}
    return {**plain, Any: [7, "text"]}[kind]


@pytest.mark.parametrize("kind", record_types(), ids=lambda kind: kind.__name__)
def test_a_record_survives_json(kind: type[Record]) -> None:
    full = example(kind)
    text = msgspec.json.encode(full)
    assert msgspec.json.decode(text, type=kind) == full
    assert b"\n" not in text, "one record is one line of NDJSON"


@pytest.mark.parametrize("kind", record_types(), ids=lambda kind: kind.__name__)
def test_a_record_is_frozen(kind: type[Record]) -> None:
    full = example(kind)
    for field in msgspec.structs.fields(kind):
        with pytest.raises(AttributeError):
            setattr(full, field.name, None)


def test_a_newer_peer_may_send_fields_that_are_not_known_yet() -> None:
    text = b'{"port": 1, "token": "t", "from_the_future": {}}'
    assert msgspec.json.decode(text, type=ProbeTicket) == ProbeTicket(port=1, token="t")


@pytest.mark.parametrize("kind", [JobSpec, Participant])
def test_a_misspelled_field_of_a_hand_written_record_is_an_error(kind: type[Any]) -> None:
    misspelled = "enviroment"  # codespell:ignore
    text = msgspec.json.encode(msgspec.to_builtins(example(kind)) | {misspelled: {}})
    with pytest.raises(msgspec.ValidationError, match=misspelled):
        msgspec.json.decode(text, type=kind)


@pytest.mark.parametrize(
    "message",
    [example(kind) for kind in typing.get_args(api.StreamMessage)],
    ids=lambda one: type(one).__name__,
)
def test_the_stream_tells_its_messages_apart(message: api.StreamMessage) -> None:
    assert api.stream_decoder.decode(msgspec.json.encode(message)) == message


@pytest.mark.parametrize(
    "sample",
    [example(kind) for kind in typing.get_args(metrics.Sample)],
    ids=lambda one: type(one).__name__,
)
def test_the_journal_tells_its_samples_apart(sample: metrics.Sample) -> None:
    line = metrics.JournalLine(seq=3, attempt=1, body=sample)
    assert metrics.journal_decoder.decode(metrics.encoder.encode(line)) == line


def test_peers_of_a_step_are_ranks_again_after_json() -> None:
    step = metrics.RankStep(time_s=1.0, rank=Rank(0), step=1, step_s=0.1, sent_bytes={1: 10, 2: 20})
    assert metrics.sample_decoder.decode(metrics.encoder.encode(step)) == step


def test_a_journal_from_before_evaluations_had_lines_of_their_own_is_still_read() -> None:
    body = b'{"kind":"step","time_s":1,"rank":0,"step":3,"step_s":0.1,"evaluation_loss":4.5}'
    line = metrics.read_journal_line(b'{"seq":1,"attempt":1,"body":' + body + b"}")
    assert line is not None
    assert line.body == metrics.RankStep(time_s=1.0, rank=Rank(0), step=3, step_s=0.1)


def test_ids_are_made_as_they_are_recognized() -> None:
    made = {ids.new_job_id() for _ in range(50)}
    assert len(made) == 50
    assert all(ids.is_job_id(one) for one in made)
    assert len(ids.new_node_id()) == 32
    assert not any(
        ids.is_job_id(bad) for bad in ("", "j-", "j-1234567", "j-123456789", "J-12345678")
    )


@pytest.mark.parametrize("name", ["default", "lab-2", "a", "x.y_z", "A" * 63])
def test_cluster_names(name: str) -> None:
    assert ids.is_cluster_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a b", "ü", "a/b", "A" * 64, "a\n", "a\r\nX: y"])
def test_names_that_are_none(name: str) -> None:
    assert not ids.is_cluster_name(name)


@pytest.mark.wording
def test_an_error_is_one_line_of_node_cause_and_fix() -> None:
    error = errors.RefusedError("GPU 0 is busy with pid 7", fix="end it", node="node1")
    assert str(error) == "node1: GPU 0 is busy with pid 7. Fix: end it."
    assert str(errors.SpecError("nothing to run")) == "nothing to run."
    assert errors.NodeError("silent", kind=Kind.NO_ANSWER).kind is Kind.NO_ANSWER


def test_every_error_has_a_kind_and_an_exit_code_of_its_own_or_its_family() -> None:
    kinds = errors.MntrainError.__subclasses__()
    assert len({kind.default for kind in kinds}) == len(kinds)
    assert all(kind.exit_code > 1 for kind in kinds)


def test_a_sample_that_only_a_newer_agent_knows_is_skipped_and_a_spoilt_one_is_not() -> None:
    newer = b'{"seq": 7, "attempt": 1, "body": {"kind": "from_the_future", "time_s": "soon"}}'
    assert metrics.read_journal_line(newer) is None
    line = metrics.JournalLine(seq=8, attempt=1, body=example(metrics.RankProgress))
    assert metrics.read_journal_line(metrics.encoder.encode(line)) == line
    for spoilt in (
        b'{"seq": 7, "attempt": 1, "body": {"kind": "step", "rank": "zero"}}',
        b'{"seq": "7", "attempt": 1, "body": {"kind": "from_the_future"}}',
        b'{"seq": 7, "attempt": 1, "body": {}}',
        b'{"seq": 7, "attempt": 1',
    ):
        with pytest.raises(msgspec.DecodeError):
            metrics.read_journal_line(spoilt)


@pytest.mark.parametrize(
    ("done", "total", "is_over"), [(0, None, False), (3, 4, False), (4, 4, True), (5, 4, True)]
)
def test_progress_is_over_when_all_is_done(
    done: float, total: float | None, *, is_over: bool
) -> None:
    progress = metrics.RankProgress(0.0, Rank(0), "reading", done, total)
    assert progress.is_over is is_over
