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
        ("fabric run --num-nodes 2 train.py --lr 1", "train.py", ("--lr", "1"), ""),
        ("lightning run model --devices=2 train.py", "train.py", (), ""),
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
        ("lmf train a.yaml", "--module llamafactory.launcher -- a.yaml"),
        (
            "axolotl train a.yaml --launcher torchrun --lr 1 -- --nnodes 2 --rdzv_id 3",
            "--module axolotl.cli.train -- a.yaml --lr 1",
        ),
        ("litgpt finetune_full m", "--module litgpt -- finetune_full m --num_nodes NODES"),
        ("litgpt pretrain m --num_nodes=2", "--module litgpt -- pretrain m --num_nodes=2"),
        ("litgpt download m", "--module litgpt -- download m"),
        ("yolo train data=a.yaml", "--torchrun=--no-python yolo -- train data=a.yaml"),
        (
            "tune run --nnodes 2 --standalone full_dist --config llama/1B_full lr=1",
            (
                "tune cp full_dist full_dist.py; tune cp llama/1B_full 1B_full.yaml; "
                "mntrain launch full_dist.py --file 1B_full.yaml -- --config 1B_full.yaml lr=1"
            ),
        ),
        (
            "tune run mine/full.py --config a.yaml",
            "mntrain launch mine/full.py --file a.yaml -- --config a.yaml",
        ),
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
def test_a_configuration_that_is_here_is_sent_with_all_that_it_may_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "a.yaml").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError) as caught:
        parse(["launch", "llamafactory-cli", "train", "a.yaml"], program="mntrain")
    assert caught.value.fix == "mntrain launch --project . --module llamafactory.launcher -- a.yaml"


@pytest.mark.wording
@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("WANDB_MODE=offline train.py", "launch --env WANDB_MODE=offline train.py"),
        ("A=1 _B= train.py -- --lr 1", "launch --env A=1 --env _B= train.py -- --lr 1"),
        ("env A=1 python train.py --lr 1", "launch --env A=1 train.py -- --lr 1"),
        ("uv run train.py", "launch train.py"),
        ("uv run torchrun --nproc_per_node=2 t.py", "launch t.py, with --member HOST:2 for"),
        (
            "CUDA_VISIBLE_DEVICES=0,2 A=1 torchrun --nproc_per_node=2 t.py",
            "launch --env A=1 t.py, with --member HOST:gpu0,2 for each node",
        ),
        (
            (
                "FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=0 MASTER_ADDR=a MASTER_PORT=1 "
                "llamafactory-cli train a.yaml"
            ),
            "launch --module llamafactory.launcher -- a.yaml",
        ),
        ("A=1 bash run.sh", "launch --env A=1 --torchrun=--no-python run.sh"),
        (
            "fabric run --num-nodes=2 --devices 1 --precision bf16-mixed --main-port 1 t.py",
            (
                "--env LT_CLI_USED=1 --env LT_DEVICES=1 --env LT_NUM_NODES=2 "
                "--env LT_PRECISION=bf16-mixed t.py"
            ),
        ),
    ],
)
def test_a_line_of_a_shell_keeps_its_variables(line: str, fix: str):
    with pytest.raises(SpecError) as caught:
        parse(["launch", *shlex.split(line)], program="mntrain")
    assert caught.value.kind is Kind.BAD_COMMAND
    assert fix in caught.value.fix


@pytest.mark.parametrize("line", ["env", "A=1", "env.py"])
def test_a_word_that_only_looks_like_a_shells_is_none(line: str):
    assert parse(["launch", *line.split()], program="mntrain")


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
