"""Job file: the same spec comes back, and errors name what is wrong."""

from __future__ import annotations

import tomllib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_mntrain.launch.driver_values import with_values
from jupyter_mntrain.launch.spec_file import is_spec, read_spec, secret_names, write_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.ids import JobId
from jupyter_mntrain.model.records.job import JobSpec, Origin, Participant
from jupyter_mntrain.plan.spec_check import check_spec
from tests.wording import says

ODD = st.text(st.sampled_from("a\"'\\\n\r\t\0\x1f\x7f\x85\u2028 =#[]é🦙"), max_size=12)
TEXTS = st.text(max_size=20) | ODD | st.sampled_from(["a\r\nb\r\n", "\r\n", "\n", '"""', "'''\n"])
NAMES = TEXTS | st.sampled_from(["HF_TOKEN", "key", "My\nSecret", "A"])
SPECS = st.builds(
    JobSpec,
    entry=st.lists(TEXTS, max_size=3).map(tuple),
    participants=st.lists(
        st.builds(
            Participant,
            node=TEXTS,
            nproc=st.integers(1, 8),
            gpus=st.lists(st.integers(0, 15), max_size=3).map(tuple),
            interface=st.none() | TEXTS,
        ),
        max_size=3,
    ).map(tuple),
    name=TEXTS,
    files=st.dictionaries(TEXTS, TEXTS, max_size=3),
    environment=st.dictionaries(NAMES, TEXTS, max_size=3),
    from_environment=st.lists(NAMES, max_size=2).map(tuple),
    torchrun_arguments=st.lists(TEXTS, max_size=2).map(tuple),
    port=st.none() | st.integers(1, 65535),
    link_capacity_bytes_per_s=st.none() | st.floats(0, allow_nan=False),
    project=st.none() | st.just("0" * 64),
    workdir=st.none() | TEXTS,
    python=st.none() | TEXTS,
    max_restarts=st.integers(0, 1000),
    on_stall=st.sampled_from(["report", "abort"]),
    on_nan=st.sampled_from([None, "stop", "report"]),
    priority=st.integers(-1000, 1000),
    min_nodes=st.none() | st.integers(1, 8),
    queue_limit_s=st.none() | st.floats(0.1, 1e9),
    lost_limit_s=st.none() | st.floats(0.1, 1e9),
    mixed_versions=st.booleans(),
    set_in=st.dictionaries(TEXTS, st.sampled_from(["recipe", "panel", "option"]), max_size=2),
)

SPEC = JobSpec(
    entry=("train.py", "--lr", "3"),
    participants=(Participant(node="wopr", nproc=2, gpus=(0, 1)), Participant(node="muthur")),
    name="mine",
    files={"train.py": "import torch\nprint('a \"word\"')\n"},
    environment={
        "A": "1",
        "HF_TOKEN": "hf_abc",
        "wandb_api_key": "x",
        "TOKENIZERS_PARALLELISM": "0",
    },
    port=29511,
)
FILE = 'mntrain_job = 1\nname = "n"\nentry = ["a.py"]\n'


def test_a_file_of_a_resumed_job_starts_it_over() -> None:
    origin = Origin(job=JobId("j-00000002"), run=JobId("j-00000001"), step=400, attempts=3)
    text = write_spec(msgspec.structs.replace(SPEC, origin=origin), with_secrets=True)
    assert "j-0000000" not in text
    assert read_spec(text) == SPEC
    with pytest.raises(SpecError):
        read_spec(FILE + "[origin]\njob = 'j-00000002'\nrun = 'j-00000001'\n", name="f")


@settings(deadline=None)  # a busy machine is no failure
@given(SPECS)
def test_what_is_written_is_read_back_exactly_from_a_file(tmp_path_factory, spec):
    path = tmp_path_factory.getbasetemp() / "spec.toml"
    text = write_spec(spec, job_id="j-00000000", submitted_s=0, with_secrets=True)
    path.write_bytes(text.encode())
    assert read_spec(path.read_bytes().decode()) == spec


@settings(deadline=None)  # a busy machine is no failure
@given(SPECS)
def test_only_what_looks_like_a_secret_is_left_out(spec):
    names = secret_names(spec)
    kept = {k: v for k, v in spec.environment.items() if k not in names}
    assert read_spec(write_spec(spec)) == msgspec.structs.replace(
        spec, environment=kept, from_environment=names
    )


def test_a_person_can_read_it():
    text = write_spec(SPEC, job_id="j-7f3a9c21", submitted_s=1_700_000_000)
    assert text.startswith("# A job of jupyter_mntrain: mine\n")
    assert "# Launch it again: mntrain launch j-7f3a9c21.toml\n" in text
    assert "# Written from job j-7f3a9c21, launched 2023-11-14 22:13 UTC\n" in text
    assert "\nmntrain_job = 1\n" in text
    assert '\n[[participants]]\nnode = "wopr"\nnproc = 2\n' in text
    assert '"train.py" = """\nimport torch\n' in text
    assert is_spec(text)


def test_secrets_are_named_and_not_written():
    assert secret_names(SPEC) == ("HF_TOKEN", "wandb_api_key")
    text = write_spec(SPEC)
    assert 'from_environment = [\n    "HF_TOKEN",\n    "wandb_api_key",\n]\n' in text
    assert "\n# or look like it: HF_TOKEN, wandb_api_key\n" in text
    assert "hf_abc" not in text
    assert "TOKENIZERS_PARALLELISM" in text
    assert "hf_abc" in write_spec(SPEC, with_secrets=True)


def test_a_file_without_its_secrets_runs_where_they_are_set():
    spec = msgspec.structs.replace(SPEC, from_environment=("PRIVATE",))
    spec = msgspec.structs.replace(spec, environment={**spec.environment, "PRIVATE": "quiet"})
    text = write_spec(spec)
    assert "quiet" not in text
    kept = read_spec(text)
    assert kept.from_environment == ("HF_TOKEN", "PRIVATE", "wandb_api_key")
    here = {"HF_TOKEN": "mine", "PRIVATE": "p", "wandb_api_key": "w", "OTHER": "o"}
    assert with_values(kept, here).environment == {
        "A": "1",
        "TOKENIZERS_PARALLELISM": "0",
        "HF_TOKEN": "mine",
        "PRIVATE": "p",
        "wandb_api_key": "w",
    }
    with pytest.raises(SpecError, match="HF_TOKEN, wandb_api_key"):
        with_values(kept, {"PRIVATE": "p"})
    assert with_values(spec, {}) == spec, "what it has is not looked for"


def test_secrets_among_the_arguments_are_left_out_and_missed_before_the_start():
    spec = msgspec.structs.replace(SPEC, entry=("train.py", "--api-key", "abc", "--url=x://a:b@c"))
    kept = read_spec(write_spec(spec))
    assert kept.entry == ("train.py", "--api-key", "***", "--url=***")
    assert says("replace each ***", write_spec(spec))
    with pytest.raises(SpecError, match=r"\*\*\*"):
        check_spec(kept)
    assert read_spec(write_spec(spec, with_secrets=True)) == spec


def test_without_participants_there_are_none():
    assert read_spec(FILE).participants == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mntrain_job = 2\n", ["version 2", "upgrade jupyter-mntrain"]),
        ("mntrain_job = true\n", ["not a version", "mntrain_job = 1"]),
        ("mntrain_jb = 1\n", ["not a job file", "mntrain_job instead of mntrain_jb"]),
        ('[model]\npreset = "llama-tiny"\n', ["not a job file", "mntrain export"]),
        ("import torch\n", ["not valid TOML", "line 1"]),
        (FILE + "prot = 3\n", ["unknown key 'prot'", "use port"]),
        (FILE + "version = 1\n", ["unknown key 'version'"]),
        (FILE + "qqq = 3\n", ["unknown key 'qqq'", "use one of entry, participants"]),
        (
            FILE + '[[participants]]\nnode = "a"\nnprocs = 1\n',
            ["participants[0]", "unknown key 'nprocs'", "use nproc"],
        ),
        (FILE + 'port = "x"\n', ["port: expected `int", "got `str`"]),
        (FILE + "participants = 3\n", ["participants: expected `array`"]),
        ("mntrain_job = 1\n", ["missing required field `entry`"]),
    ],
)
def test_what_is_wrong_is_named(text, words):
    with pytest.raises(SpecError) as caught:
        read_spec(text, name="x.toml")
    assert str(caught.value).startswith("x.toml: ")
    assert all(says(word, str(caught.value)) for word in words), str(caught.value)


def test_neither_text_nor_recipe_is_meant_as_a_job_file():
    assert not is_spec("import torch\n")
    assert not is_spec("[model]\n")
    assert is_spec("mntrain_job = 99\n")
    assert is_spec('mntrain_job = 1\nname = "open\n')
    assert tomllib.loads(write_spec(SPEC))["mntrain_job"] == 1


def test_a_file_loses_no_field_of_the_record() -> None:
    """Whoever adds a field to the spec gives it a value here, and it must come back."""
    values: dict[str, object] = {
        "entry": ("a.py",),
        "participants": (Participant(node="wopr"),),
        "name": "mine",
        "files": {"a.py": "x\n"},
        "project": "0" * 64,
        "workdir": "/shared/lm",
        "python": "conda:lm",
        "environment": {"A": "1"},
        "from_environment": ("B",),
        "torchrun_arguments": ("--tee=1",),
        "port": 29511,
        "link_capacity_bytes_per_s": 1e8,
        "max_restarts": 3,
        "on_stall": "abort",
        "on_nan": "stop",
        "priority": 5,
        "min_nodes": 1,
        "queue_limit_s": 7200.0,
        "lost_limit_s": 600.0,
        "mixed_versions": True,
        "set_in": {"train.steps": "recipe"},
    }
    plain = JobSpec(entry=(), participants=())
    of_one_job = ("version", "origin", "session", "chosen")
    fields = [one for one in JobSpec.__struct_fields__ if one not in of_one_job]
    assert sorted(values) == sorted(fields)
    assert all(value != getattr(plain, name) for name, value in values.items())
    spec = msgspec.structs.replace(plain, **values)
    assert read_spec(write_spec(spec, with_secrets=True)) == spec
