"""What ``accelerate launch`` would have told each rank stands in the line that launches it here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.launching.accelerate_options import rank_variables

FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_reshard_after_forward: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_transformer_layer_cls_to_wrap: GPT2Block
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 4
"""
DEEPSPEED = """\
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: true
  zero_stage: 3
"""

OF_A_SCRIPT = {
    "FSDP_VERSION": "1",
    "FSDP_SHARDING_STRATEGY": "full_shard",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_FORWARD_PREFETCH": "false",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
    "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD": "false",
    "FSDP_MIN_NUM_PARAMS": "100000000",
}
"""What a script does if nobody says so; the last is read with ``SIZE_BASED_WRAP`` alone, whose
files have it."""


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, FSDP),
        ({"mixed_precision": "no"}, FSDP),
        ({"use_fsdp": "true", "fsdp_version": "2"}, ""),
        ({"multi_gpu": "true"}, FSDP),
        ({}, "distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"),
        ({}, DEEPSPEED),
    ],
)
def test_variables_are_those_of_its_own_launcher(
    options: dict[str, str], text: str, tmp_path: Path
):
    command = pytest.importorskip("accelerate.commands.launch")
    launch = pytest.importorskip("accelerate.utils.launch")
    given = dict(options)
    if text:
        (tmp_path / "a.yaml").write_text(text)
        given["config_file"] = "a.yaml"
    line = [word for one in given.items() for word in (f"--{one[0]}", one[1]) if word != "true"]
    arguments = command.launch_command_parser().parse_args([*line, "--num_processes=2", "t.py"])
    arguments, _, _ = command._validate_launch_command(arguments)
    arguments.num_machines = 1  # the address of another one says nothing here
    arguments.deepspeed_fields_from_accelerate_config = []
    if arguments.use_deepspeed:
        _, theirs = launch.prepare_deepspeed_cmd_env(arguments)
    else:
        theirs = launch.prepare_multi_gpu_env(arguments)
    ours = rank_variables(given)
    same = {name: value.lower() for name, value in theirs.items()}
    assert {name: value.lower() for name, value in ours.items()}.items() <= same.items()
    lacks = {one for one in same.keys() - ours.keys() if re.match(r"ACCELERATE_USE|FSDP_", one)}
    assert {one: same[one] for one in lacks}.items() <= OF_A_SCRIPT.items()


@pytest.mark.wording
def test_its_line_is_answered_with_them(tmp_path: Path):
    (tmp_path / "ds.yaml").write_text(DEEPSPEED)
    line = ["launch", "accelerate", "launch", "--config_file", "ds.yaml", "train.py", "--lr", "1"]
    with pytest.raises(SpecError) as caught:
        parse(line, program="mntrain")
    assert caught.value.fix == (
        "mntrain launch --env ACCELERATE_USE_DEEPSPEED=true "
        "--env ACCELERATE_DEEPSPEED_ZERO_STAGE=3 --env ACCELERATE_DEEPSPEED_ZERO3_INIT=true "
        "--env ACCELERATE_DEEPSPEED_CONFIG_FILE=ds.json --file ds.json train.py -- --lr 1"
    )


def test_the_file_that_accelerate_config_writes_is_read(tmp_path: Path):
    assert rank_variables({}) == {}
    (tmp_path / "hf" / "accelerate").mkdir(parents=True)
    (tmp_path / "hf" / "accelerate" / "default_config.yaml").write_text("mixed_precision: bf16")
    assert rank_variables({}) == {"ACCELERATE_MIXED_PRECISION": "bf16"}
    assert rank_variables({"cpu": "true"}) == {}


@pytest.mark.parametrize("text", [None, "a: [", "\xff"])
def test_a_file_that_cannot_be_read_is_named(text: str | None, tmp_path: Path):
    if text is not None:
        (tmp_path / "a.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SpecError) as caught:
        parse(["launch", "accelerate", "launch", "--config_file=a.yaml", "t.py"], program="mntrain")
    assert "a.yaml" in str(caught.value)
    assert caught.value.fix
