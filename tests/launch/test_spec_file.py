"""A job that went through a file is the same job, but for its secrets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.launch.spec_file import read_spec, secrets_of, write_spec
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.job import JobSpec, Participant

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)

SPECS = st.builds(
    JobSpec,
    entry=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    participants=st.lists(
        st.builds(
            Participant,
            node=TEXT,
            nproc=st.integers(1, 9),
            gpus=st.lists(st.integers(0, 9)).map(tuple),
            interface=st.none() | TEXT,
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    name=TEXT,
    files=st.dictionaries(TEXT, TEXT, max_size=3),
    environment=st.dictionaries(st.sampled_from(["A", "B C", 'D"']), TEXT),
    torchrun_arguments=st.lists(TEXT, max_size=2).map(tuple),
    port=st.none() | st.integers(1, 65535),
    link_capacity_bytes_per_s=st.none() | st.floats(1, 1e12),
)


@given(SPECS)
def test_what_is_written_is_read_back(spec: JobSpec) -> None:
    assert read_spec(write_spec(spec, "a header\nof two lines")) == spec


def test_secrets_are_left_out_and_named() -> None:
    environment = {"HF_TOKEN": "hush", "api_key": "hush", "LEVEL": "1"}
    spec = JobSpec(entry=("a.py",), participants=(), environment=environment)
    text = write_spec(spec)
    assert secrets_of(spec) == ("HF_TOKEN", "api_key")
    assert "hush" not in text
    assert "HF_TOKEN, api_key" in text
    assert read_spec(text).environment == {"LEVEL": "1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no job file"),
        ("[model]", "mntrain_job"),
        ("mntrain_job = 99", "version 99"),
        ("mntrain_job = 1\nentri = []", "entri"),
    ],
)
def test_what_is_no_job_file_says_so(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        read_spec(text)
