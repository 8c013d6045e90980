"""Lightning: the number of nodes that a script tells it."""

from __future__ import annotations

import ast

import pytest

from jupyter_mntrain.doctor.script.lightning import told_nodes


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("import lightning as L\nL.Trainer()", [1]),
        ("import pytorch_lightning as pl\npl.Trainer(num_nodes=1, max_epochs=2)", [1]),
        ("from lightning.pytorch import Trainer\nTrainer(num_nodes=4)", [4]),
        ("from lightning import pytorch as pl\npl.Trainer(num_nodes=2)", [2]),
        ("from lightning.fabric import Fabric\nFabric(devices=1)", [1]),
        ("import lightning.pytorch\nlightning.pytorch.Trainer()", [1]),
        ("import lightning as L\nL.Trainer(num_nodes=2); L.Trainer(devices=1)", [2, 1]),
        ("import lightning as L\nL.Trainer(num_nodes=args.nodes)", []),
        ("import lightning as L\nL.Trainer(**config)", []),
        ("import lightning as L\nL.Trainer(); L.Trainer(num_nodes=n)", []),
        ("from transformers import Trainer\nTrainer(model)", []),
        ("import lightning\nfrom transformers import Trainer\nTrainer()", []),
    ],
)
def test_what_a_trainer_is_told(text: str, numbers: list[int]) -> None:
    assert [one.number for one in told_nodes(ast.parse(text))] == numbers
