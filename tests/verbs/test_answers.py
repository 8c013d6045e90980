"""``--json``: one name and one type for each thing, in all that verbs answer."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from jupyter_mntrain.verbs.answers import ANSWERS
from jupyter_mntrain.verbs.table import TABLE
from jupyter_mntrain.verbs.verb import Verb
from scripts.output_schema import ERROR, FILE, schema, text
from tests.rows import same_rows
from tests.standin.answers import check_answer

ONE_THING = {
    "job_id": "string",
    "node": "string",
    "node_id": "string",
    "rank": "integer",
    "world_size": "integer",
    "elapsed_s": "number",
    "size_bytes": "integer",
    "total_bytes": "integer",
    "count": "integer",
    "problem": "Problem",
    "problems": "[Problem]",
    "warnings": "[Problem]",
    "run": "string",
    "state": "string",
    "name": "string",
    "cluster": "string",
    "member": "string",
    "member_id": "string",
    "file": "string",
    "pid": "integer",
    "saved_step": "integer",
    "note": "string",
}
"""What several verbs tell, by its name: its type, or null where it is not known."""

OTHER_WORDS = {"called": "node", "duration_s": "elapsed_s", "id": "…_id", "bytes": "size_bytes"}
"""Words that are not used for them at the top of an answer."""

HOMONYMS = frozenset(
    """
    calls changes checkpoints choices chosen commands cuda data devices doctor done environment
    estimate evaluation_loss files fix gpu gpus high host in_flight interfaces jobs kept deferred
    layers leases left_out leftovers links loss low memory memory_bytes microbatches min_nodes
    missing model nccl nodes notes optimizer origin others parts peer plan port priority processes
    project ranks rdma_ports reason receiver refused restart said sender sent_bytes sequences
    settings silent sizes slots source speed split step steps summary tokens user value values
    version waits_for
    """.split()  # noqa: SIM905 - shorter to read
)
"""Names that mean different things in different records, which agents, page or recipes know by
them, too. None is to be added; where one goes, it goes from here."""


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    return schema()


def signature(one: dict[str, Any]) -> str:
    """A type in short, without whether it may be null."""
    if "$ref" in one:
        return str(one["$ref"].rpartition("/")[2])
    if "anyOf" in one:
        return "|".join(sorted({signature(each) for each in one["anyOf"]} - {"null"}))
    if "enum" in one:
        return "string"
    if one.get("type") == "array":
        return f"[{signature(one['items']) if isinstance(one.get('items'), dict) else ''}]"
    if one.get("type") == "object":
        values = one.get("additionalProperties")
        return f"{{{signature(values) if isinstance(values, dict) else ''}}}"
    return str(one.get("type", ""))


def types_of(published: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for one in published["$defs"].values():
        for name, value in one.get("properties", {}).items():
            told = signature(value)
            of = published["$defs"].get(told, {})
            found[name].add("string" if "enum" in of else told)
    return found


def test_the_published_schema_is_made_of_the_records() -> None:
    assert FILE.read_text() == text(), "it is outdated: python -m scripts.output_schema"


def test_every_command_has_its_answer() -> None:
    commands = [
        f"{verb.name} {action}" if action else verb.name
        for verb in TABLE.values()
        for action in (*verb.actions, *([] if verb.actions else [""]))
    ]
    same_rows(
        commands,
        ANSWERS,
        "'{}' has no answer: add it to ANSWERS in verbs/answers.py",
        "ANSWERS of verbs/answers.py has '{}', which is no command: take it out",
    )


def test_one_thing_has_one_name_and_one_type(published: dict[str, Any]) -> None:
    found = types_of(published)
    assert {name: found[name] for name in ONE_THING if found[name] != {ONE_THING[name]}} == {}


def test_no_name_gets_a_second_meaning(published: dict[str, Any]) -> None:
    several = {name for name, types in types_of(published).items() if len(types - {""}) > 1}
    assert several - HOMONYMS == set(), "use another name, or that of the same thing elsewhere"
    assert HOMONYMS - several == set(), "they have one meaning now: take them out of HOMONYMS"


def test_an_answer_calls_things_by_their_names(published: dict[str, Any]) -> None:
    answers = {key: one for key, one in published["properties"].items() if key != ERROR}
    for command, one in answers.items():
        for answer in one.get("anyOf", [one]):
            of = answer.get("items", answer)
            names = published["$defs"][signature(of)]["properties"] if "$ref" in of else {}
            own = set(names) - ({"called"} if "liveness" in names else set())  # a record's own
            assert not own & OTHER_WORDS.keys(), command
    assert "$ref" in published["properties"][ERROR]


@pytest.mark.parametrize(
    "data", [{"job_id": 3, "name": "a", "note": "", "silent": []}, {"job_id": "j-1"}, {"x": 1}, []]
)
def test_an_answer_of_another_form_is_found(data: Any) -> None:
    verb: Verb = TABLE["note"]
    with pytest.raises(AssertionError, match="note: "):
        check_answer(verb, data)
    check_answer(verb, json.loads('{"job_id": "j-1", "name": "a", "note": "", "silent": []}'))
