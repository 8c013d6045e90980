"""Device speed: the program, run as an agent runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import get_args

import msgspec
import pytest
import torch

from jupyter_mntrain.model.records.plan import DeviceMeasurement
from jupyter_mntrain.recipe.transfers import Format
from jupyter_mntrain.telemetry.device import BEGINS, READY, speed
from jupyter_mntrain.telemetry.device.layer_times import Layer, LayerSize
from jupyter_mntrain.telemetry.device.work_timer import WorkTimer
from jupyter_mntrain.telemetry.formulas import ModelShape, layer_flops_per_token

CPU = torch.device("cpu")


def test_a_layer_that_is_timed_has_the_flops_of_the_formula_and_all_gradients() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    layer = Layer(LayerSize(hidden=128, tokens=32), CPU, torch.float32)
    with FlopCounterMode(display=False) as counted:
        layer.backward(layer.forward())
    shape = ModelShape(1, 128, layer.size.intermediate, 2, 2, 64, 0)
    expected = 32 * layer_flops_per_token(shape, 32)
    assert counted.get_total_flops() == pytest.approx(expected, rel=0.05)
    weights = (layer.input, *layer.norms, *layer.attention, *layer.mlp)
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in weights)


def test_a_layer_is_causal() -> None:
    layer = Layer(LayerSize(hidden=128, tokens=8), CPU, torch.float32)
    before = layer.forward().detach()
    with torch.no_grad():
        layer.input[0, 5] += 1.0
    after = layer.forward().detach()
    assert torch.equal(before[0, :5], after[0, :5])
    assert not torch.allclose(before[0, 5:], after[0, 5:])


def test_layers_that_would_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "PIECE_S", 0.0)
    monkeypatch.setattr(speed, "LONGEST_ROUND_S", 0.0)
    monkeypatch.setitem(speed._COPIED_BYTES, "cpu", 1 << 20)
    measured = speed.measure(CPU, torch.float32)
    assert [(one.hidden_size, one.tokens) for one in measured.layers] == [(256, 32), (1024, 32)]

    measured = speed.measure(CPU, torch.float32, seconds=0.0)
    assert [(one.hidden_size, one.tokens) for one in measured.layers] == [(256, 32)]


def test_each_format_of_messages_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "PIECE_S", 0.0)
    monkeypatch.setitem(speed._MESSAGE, "cpu", (64, 256))
    codecs = list(speed._codecs(WorkTimer(CPU), CPU, torch.bfloat16))
    assert {one.form for one in codecs} == {*get_args(Format)} - {"none"}
    assert all(0 < one.encoding < 1e12 and 0 < one.decoding < 1e12 for one in codecs)


def test_a_dtype_for_which_there_are_no_instructions_has_a_small_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert speed._product(CPU, torch.float32)[1] == 2 * 1024**3
    monkeypatch.setattr(speed, "PIECE_S", 0.0)
    assert speed._product(CPU, torch.float32)[1] == 2 * 256**3


@pytest.mark.slow
def test_the_program_measures_each_dtype_once_it_may_begin() -> None:
    command = [sys.executable, "-m", "jupyter_mntrain.telemetry.device.speed", "cpu", "float32"]
    command += ["bfloat16", "no_such_dtype"]
    quick = {"MNTRAIN_DEVICES_PIECE_S": "0.02", "MNTRAIN_DEVICES_LONGEST_ROUND_S": "0.2"}
    environment = {**os.environ, **quick, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip() == READY
        out, errors = program.communicate("600\n")
    assert program.returncode == 0, errors
    assert "no_such_dtype" in errors
    lines = out.splitlines()
    begun = [line.removeprefix(BEGINS) for line in lines if line.startswith(BEGINS)]
    assert begun == ["float32", "bfloat16", "no_such_dtype"]
    told = [line for line in lines if not line.startswith(BEGINS)]
    found = [msgspec.json.decode(line, type=DeviceMeasurement) for line in told]
    assert [one.dtype for one in found] == ["float32", "bfloat16"]
    assert lines.index(told[0]) == 1, "the second begins when the first is done"
    for one in found:
        assert (one.gpu, one.threads, one.torch) == (None, 1, torch.__version__)
        assert min(one.flops_per_s, one.bytes_per_s, one.operation_s) > 0
        assert len({layer.hidden_size for layer in one.layers}) == 2
        for layer in one.layers:
            assert min(layer.forward_s, layer.backward_s, layer.product_flops_per_s) > 0


@pytest.mark.slow
def test_the_program_ends_if_nobody_lets_it_begin() -> None:
    command = [sys.executable, "-m", "jupyter_mntrain.telemetry.device.speed", "cpu", "float32"]
    done = subprocess.run(command, input="", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (1, READY)
