"""Other launchers: their words lead to ours."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.verbs.command import parse
from jupyter_mntrain.verbs.launching.other_launchers import meant_by


@pytest.mark.parametrize(
    ("line", "target", "arguments", "processes"),
    [
        ("torchrun --nproc_per_node=2 train.py --lr 1", "train.py", ("--lr", "1"), "2"),
        ("torchrun --nproc-per-node 2 --nnodes 2 train.py", "train.py", (), "2"),
        ("torchrun --nproc_per_node=gpu --rdzv-endpoint=h:1 train.py x", "train.py", ("x",), ""),
        ("torchrun --standalone -m pkg.train --lr 1", "pkg.train", ("--lr", "1"), ""),
        ("accelerate launch --num_processes 4 train.py --a b", "train.py", ("--a", "b"), "4"),
        ("accelerate launch --config_file a.yaml train.py", "train.py", (), ""),
        ("deepspeed --num_gpus=8 train.py --deepspeed", "train.py", ("--deepspeed",), "8"),
        ("python -m torch.distributed.launch --nproc_per_node=2 a.py", "a.py", (), "2"),
        ("python3 -u -m torch.distributed.run --nproc_per_node 2 a.py", "a.py", (), "2"),
        ("python -m accelerate.commands.launch a.py", "a.py", (), ""),
        ("/opt/bin/python3.11 sub/train.py --lr 1", "sub/train.py", ("--lr", "1"), ""),
        ("python -m pkg.train", "pkg.train", (), ""),
        ("srun --ntasks-per-node=4 python train.py", "train.py", (), "4"),
        ("mpirun -np 4 -H a:2,b:2 python train.py --x", "train.py", ("--x",), "4"),
        ("horovodrun -np 2 python train.py", "train.py", (), "2"),
        ("torchrun", "", (), ""),
    ],
)
def test_what_a_line_of_another_launcher_runs(
    line: str, target: str, arguments: tuple[str, ...], processes: str
):
    meant = meant_by(shlex.split(line))
    assert meant is not None
    assert (meant.target, meant.arguments, meant.processes) == (target, arguments, processes)
    assert meant.is_module is ("." in target and not target.endswith(".py"))
    for words in (["launch", *shlex.split(line)], ["--cluster", "c", "launch", *shlex.split(line)]):
        with pytest.raises(SpecError) as caught:
            parse(words, program="mntrain")
        assert caught.value.kind is Kind.BAD_COMMAND
        assert target in caught.value.fix


@pytest.mark.parametrize("line", ["train.py", "--member a:2 train.py", "llama.toml", "python.py"])
def test_own_words_are_none_of_another(line: str):
    assert meant_by(line.split()) is None


@pytest.mark.wording
@pytest.mark.parametrize("program", ["mntrain", "%mntrain"])
def test_what_is_meant_is_written_out(program: str):
    with pytest.raises(SpecError) as caught:
        parse(shlex.split("torchrun --nproc_per_node=2 train.py -- --n 'a b'"), program=program)
    assert caught.value.fix == (
        f"{program} launch train.py -- --n 'a b', with --member HOST:2 for each node"
    )


@pytest.mark.wording
@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("llamafactory-cli train a.yaml", "--module llamafactory.launcher -- a.yaml"),
        ("llamafactory-cli -- train a.yaml", "--module llamafactory.launcher -- a.yaml"),
        ("axolotl train a.yaml --lr 1", "--module axolotl.cli.train -- a.yaml --lr 1"),
        ("tune run full_finetune_distributed", "--module MODULE"),
        ("bash run.sh", "SCRIPT.py"),
        ("./run.sh --lr 1", "SCRIPT.py"),
        ("./run.sh --lr 1", "--torchrun=--no-python ./run.sh"),
        ("bash run.sh", "--torchrun=--no-python run.sh"),
    ],
)
def test_programs_that_start_ranks_lead_to_what_a_rank_runs(line: str, fix: str):
    with pytest.raises(SpecError) as caught:
        parse(["launch", *shlex.split(line)], program="mntrain")
    assert caught.value.kind is Kind.BAD_COMMAND
    assert fix in caught.value.fix


@pytest.mark.wording
@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("-m mypkg.train", "mntrain launch --module mypkg.train"),
        ("-m mypkg.train --lr 1", "mntrain launch --module mypkg.train -- --lr 1"),
        ("t.py --nproc-per-node 2", "--member HOST:2"),
        ("t.py --nproc_per_node=4", "--member HOST:4"),
        ("t.py --nnodes 2", "--member HOST:N"),
        ("--no-python run --lr 1", "mntrain launch --torchrun=--no-python run --lr 1"),
        ("torchrun --no-python run.sh a", "launch --torchrun=--no-python run.sh -- a"),
        ("t.py --torchrun --rdzv-backend=c10d", "--torchrun=--rdzv-backend=c10d"),
    ],
)
def test_the_options_of_torchrun_lead_to_ours(line: str, fix: str):
    with pytest.raises(SpecError) as caught:
        parse(["launch", *shlex.split(line)], program="mntrain")
    assert caught.value.kind is Kind.BAD_COMMAND
    assert fix in caught.value.fix


@pytest.mark.parametrize("line", ["run.sh", "bash -- run.sh", "./a.out -- --lr 1"])
def test_what_ranks_run_without_python_is_no_other_launcher(line: str):
    assert parse(["launch", "--torchrun=--no-python", *line.split()], program="mntrain")


@pytest.mark.parametrize(
    "line", ["-m node1.lan train.py", "-m node1:2 train.py", "-m node1 a.toml"]
)
def test_a_member_is_no_module(line: str):
    assert parse(["launch", *line.split()], program="mntrain").args.member == [line.split()[1]]


@pytest.mark.wording
def test_a_path_with_a_space_is_answered_with_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "my own").mkdir()
    (tmp_path / "my own" / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        parse(["launch", "my", "own/train.py"], program="mntrain")
    assert "'my own/train.py'" in caught.value.fix
