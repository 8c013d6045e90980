"""Batch script: what sbatch is asked for, and what a shell makes of it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path, PurePosixPath

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.sources.source import SECRETS, SLOT, STATE, NodesRequest, SlotCommand
from jupyter_mntrain.sources.slurm.batch_script import batch_script
from jupyter_mntrain.sources.slurm.slurm_options import OPTIONS, limit_text, sbatch_options

REQUEST = NodesRequest(
    "slurm",
    3,
    gpus="a100:4",
    time_s=5400.0,
    name="llama",
    options={
        "partition": ("gpu",),
        "account": ("my project",),
        "constraint": ("a100&ib",),
        "switches": ("1@02:00:00",),
        "sbatch": ("--exclusive", "--mail-type=END --mail-user=me@here"),
        "before": ("module load cuda", "source ~/venv/bin/activate"),
    },
)
AGENT = SlotCommand(
    ("mntrain", "agent", "join", f"--name={SLOT}", "--token-file", f"{SECRETS}/token", STATE),
    secrets={"token": "very secret"},
    environment={"OWN": "a 'b' $c"},
)
FOLDER = PurePosixPath("/home/me/it's here/llama-1")


def asked(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH ")]
    return [word for line in lines for word in shlex.split(line)[1:]]


def test_everything_that_was_asked_for_stands_in_the_script() -> None:
    script = batch_script(REQUEST, AGENT, FOLDER)
    words = asked(script)
    for word in (
        "--job-name=llama",
        "--nodes=3",
        "--ntasks-per-node=1",
        "--gpus-per-node=a100:4",
        "--time=0-01:30:00",
        "--partition=gpu",
        "--account=my project",
        "--constraint=a100&ib",
        "--switches=1@02:00:00",
        "--exclusive",
        "--mail-user=me@here",
        "--signal=B:USR1@180",
        "--requeue",
        "--no-kill",
        f"--chdir={FOLDER}",
    ):
        assert word in words
    own = script.index("module load cuda\nsource ~/venv/bin/activate\n")
    # Such a line may change the directory; what is removed afterwards is ours.
    back = script.index(f"cd {shlex.quote(str(FOLDER))} || exit")
    assert own < back < script.index("rm -rf ") < script.index("\nsrun ")


def test_no_secret_stands_in_the_script() -> None:
    assert "very secret" not in batch_script(REQUEST, AGENT, FOLDER)


def test_a_shell_can_read_it() -> None:
    script = batch_script(REQUEST, AGENT, FOLDER)
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert max(map(len, script.splitlines())) < 160


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0{}\r", exclude_categories=["Cs"])), max_size=4
    )
)
def test_every_node_runs_the_command_as_it_was_said(words: list[str]) -> None:
    """The script's own function, by a shell that has what SLURM sets."""
    command = SlotCommand(("printf", "%s\\0", "", *words, SLOT, STATE))
    script = batch_script(msgspec.structs.replace(REQUEST, options={}), command, FOLDER)
    start = script.index("agent() {")
    function = script[start : script.index("export -f agent")].replace("hosts/", "/dev/null;: ")
    done = subprocess.run(
        ["bash", "-c", f"{function}agent"],
        env={"SLURM_NODEID": "2", "SLURMD_NODENAME": "node7", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    said = done.stdout.decode(errors="surrogateescape").split("\0")
    assert said == ["", *words, "slurm-2", str(FOLDER), ""]


@pytest.mark.parametrize(
    ("time_s", "text"),
    [
        (1.0, "0-00:01:00"),
        (60.0, "0-00:01:00"),
        (61.0, "0-00:02:00"),
        (7200.0, "0-02:00:00"),
        (8 * 86_400.0, "8-00:00:00"),
    ],
)
def test_a_time_limit_is_in_whole_minutes(time_s: float, text: str) -> None:
    assert limit_text(time_s) == text


@pytest.mark.parametrize(
    "options",
    [
        {"sbatch": ("--nodes=9",)},
        {"sbatch": ("-N9",)},
        {"sbatch": ("--exclusive --gres=gpu:8",)},
        {"sbatch": ("--wrap=true",)},
        {"sbatch": ("exclusive",)},
        {"sbatch": ("--comment='open",)},
        {"sbatch": ("--comment=a\n#SBATCH --nodes=9",)},
        {"partition": ("gpu\nrm -rf /",)},
        {"partitoin": ("gpu",)},
        {"save-before-end": ("soon",)},
        {"save-before-end": ("0",)},
        {"save-before-end": ("99999999999999999999",)},
        {"partition": ("a", "b")},
    ],
)
def test_what_cannot_be_meant_is_one_line(options: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(SpecError) as raised:
        sbatch_options(NodesRequest("slurm", 1, options=options))
    assert raised.value.fix
    assert "\n" not in str(raised.value)


@given(st.sampled_from([one.name for one in OPTIONS if one.kind == "text"]), st.text(max_size=40))
@example("partition", "\n")
def test_a_value_never_becomes_another_option(name: str, value: str) -> None:
    try:
        lines = sbatch_options(NodesRequest("slurm", 1, options={name: (value,)}))
    except SpecError:
        return
    for line in lines:
        assert "\n" not in line
        assert len(shlex.split(line)) == 1


def test_every_option_is_described() -> None:
    for option in OPTIONS:
        assert option.help
        assert option.example
        assert not option.help.endswith(".")


def test_files_of_the_script_are_in_its_own_folder() -> None:
    script = batch_script(REQUEST, AGENT, FOLDER)
    assert str(Path.home()) not in script.replace(sys.executable, "python")


def test_a_job_that_has_saved_is_queued_again_unless_that_is_not_wanted() -> None:
    for options, wish in ({}, "again"), ({"requeue": ("no",)}, ""):
        request = msgspec.structs.replace(REQUEST, options=options)
        script = batch_script(request, AGENT, FOLDER)
        (trap,) = (line for line in script.splitlines() if line.endswith("USR1"))
        assert ("echo again" in trap) == bool(wish)
