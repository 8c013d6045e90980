from __future__ import annotations

import re

import pytest
import torch

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.telemetry import known_peak
from jupyter_mntrain.telemetry.device.gemm import device_peak
from jupyter_mntrain.telemetry.device.peaks import architectures, given_peak


@pytest.mark.parametrize(
    ("name", "dtype", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989),
        ("NVIDIA H100 PCIe", "bfloat16", 756),
        ("NVIDIA H200", "float16", 989),
        ("NVIDIA A100-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A100 80GB PCIe", "float32", 19.5),
        ("NVIDIA GeForce RTX 3090", "bfloat16", 71.2),
        ("NVIDIA GeForce RTX 3090 Ti", "bfloat16", 80),
        ("NVIDIA GeForce RTX 4090", "float32", 82.6),
        ("NVIDIA L40S", "bfloat16", 362),
        ("NVIDIA L4", "bfloat16", 121),
        ("Tesla T4", "float16", 65),
        ("NVIDIA H200 NVL", "bfloat16", 835),
        ("NVIDIA H200 NVL", "float32", 60),
        ("NVIDIA B300 SXM6 AC", "bfloat16", 2250),
        ("NVIDIA GB300", "bfloat16", 2500),
        ("NVIDIA H20", "bfloat16", 148),
        ("NVIDIA H800", "bfloat16", 989),
        ("NVIDIA H800 PCIe", "bfloat16", 756),
        ("NVIDIA A800-SXM4-80GB", "bfloat16", 312),
        ("NVIDIA A800 80GB PCIe", "float32", 19.5),
        ("NVIDIA A30", "bfloat16", 165),
        ("NVIDIA RTX A5000", "bfloat16", 111.1),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "bfloat16", 503.8),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "bfloat16", 438.9),
        ("NVIDIA GeForce RTX 3080", "bfloat16", 59.5),
        ("NVIDIA GeForce RTX 4080 SUPER", "bfloat16", 104.4),
        ("NVIDIA GeForce RTX 4090 D", "bfloat16", 147.1),
        ("NVIDIA GeForce GTX 1080 Ti", "float32", 11.34),
        ("NVIDIA TITAN X (Pascal)", "float32", 10.97),
        ("Tesla P100-PCIE-16GB", "float32", 9.3),
        ("Tesla P40", "float32", 12),
        ("Tesla V100-PCIE-32GB", "float16", 112),
        ("Tesla V100S-PCIE-32GB", "float16", 130),
        ("NVIDIA GeForce RTX 2070 SUPER", "float16", 36.25),
        ("NVIDIA TITAN RTX", "float16", 130.5),
        ("Quadro RTX 8000", "float16", 130.5),
        ("NVIDIA GeForce GTX 1660 Ti", "float32", 5.44),
        ("NVIDIA GeForce RTX 3060 Ti", "bfloat16", 32.4),
        ("NVIDIA GeForce RTX 3070", "bfloat16", 40.6),
        ("NVIDIA GeForce RTX 3070 Ti", "bfloat16", 43.5),
        ("NVIDIA GeForce RTX 3080 Ti", "bfloat16", 68.2),
        ("NVIDIA RTX A2000 12GB", "bfloat16", 31.9),
        ("NVIDIA RTX A4000", "bfloat16", 76.7),
        ("NVIDIA RTX A4500", "bfloat16", 94.6),
        ("NVIDIA A10G", "bfloat16", 70),
        ("NVIDIA GeForce RTX 4060", "bfloat16", 30.2),
        ("NVIDIA GeForce RTX 4060 Ti", "bfloat16", 44.1),
        ("NVIDIA GeForce RTX 4070", "bfloat16", 58.3),
        ("NVIDIA GeForce RTX 4070 SUPER", "bfloat16", 71),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "bfloat16", 88.2),
        ("NVIDIA RTX 4000 Ada Generation", "bfloat16", 106.9),
        ("NVIDIA RTX 5000 Ada Generation", "bfloat16", 261.1),
        ("NVIDIA GeForce RTX 5060 Ti", "bfloat16", 47.4),
        ("NVIDIA GeForce RTX 5070", "bfloat16", 61.7),
        ("NVIDIA RTX PRO 4500 Blackwell", "bfloat16", 219.7),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "bfloat16", 480),
        ("NVIDIA GB10", "bfloat16", 125),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "bfloat16", 26.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bfloat16", 79.4),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "bfloat16", 90.7),
        ("NVIDIA RTX A5000 Laptop GPU", "bfloat16", 86.8),
        ("NVIDIA RTX 5000 Ada Generation Laptop GPU", "bfloat16", 170.4),
    ],
)
def test_known_devices(name: str, dtype: str, tera: float) -> None:
    peak = known_peak(name, dtype)
    assert peak is not None
    assert peak.flops_per_s == pytest.approx(tera * 1e12, rel=0.004)
    assert dtype in peak.source


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA GeForce RTX 4090 Super", "bfloat16"),
        ("NVIDIA GeForce RTX 3050", "bfloat16"),  # two cards
        ("NVIDIA GeForce GTX 1080 Ti", "float16"),  # no tensor cores
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "float16"),
        ("Orin (nvgpu)", "bfloat16"),  # four modules
        ("GRID T4-16Q", "float16"),
        ("NVIDIA A30 MIG 1g.6gb", "bfloat16"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bfloat16"),
        ("NVIDIA H20Z", "bfloat16"),
        ("Tesla T4", "bfloat16"),
        ("NVIDIA H100 PCIe", "float64"),
        ("NVIDIA B200", "float32"),
        ("", "bfloat16"),
    ],
)
def test_never_a_wrong_number(name: str, dtype: str) -> None:
    assert known_peak(name, dtype) is None


def test_every_card_of_the_table_has_a_peak_that_one_entry_tells() -> None:
    for name, architecture in architectures().items():
        for pattern, card in architecture.cards.items():
            float32, sixteen_bit = architecture.float32(card), architecture.sixteen_bit(card)
            assert float32 or sixteen_bit, (name, pattern)
            assert not (float32 and sixteen_bit) or float32 < sixteen_bit, (name, pattern)
            assert architecture.tf32 <= architecture.bfloat16, "both since Ampere"
    patterns = [one for each in architectures().values() for one in each.cards]
    for pattern in patterns:
        assert sum(re.fullmatch(other, pattern) is not None for other in patterns) <= 1


def test_geforce_runs_float32_at_half_its_sixteen_bit_rate() -> None:
    for name in ("RTX 3060", "RTX 3080", "RTX 3090", "RTX 4080 SUPER", "RTX 4090 D", "RTX 5090"):
        fast = known_peak(f"NVIDIA GeForce {name}", "bfloat16")
        slow = known_peak(f"NVIDIA GeForce {name}", "float32")
        assert fast is not None
        assert slow is not None
        assert fast.flops_per_s == pytest.approx(2 * slow.flops_per_s, rel=0.01)


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA A100-SXM4-80GB", 156),
        ("NVIDIA H100 80GB HBM3", 494.5),
        ("NVIDIA GeForce RTX 3090", 35.6),
        ("NVIDIA GeForce RTX 4090", 82.6),
        ("Tesla T4", 8.1),  # has none
        ("AMD Instinct MI300X", 163.4),  # needs more than torch's setting
    ],
)
def test_tf32_is_half_of_sixteen_bit_where_a_gpu_has_it(name: str, tera: float) -> None:
    peak = known_peak(name, "float32", tf32=True)
    assert peak is not None
    assert peak.flops_per_s == pytest.approx(tera * 1e12, rel=0.001)
    assert ("TF32" in peak.source) == name.startswith("NVIDIA")
    for dtype in ("bfloat16", "float16"):
        assert known_peak(name, dtype, tf32=True) == known_peak(name, dtype)


def test_a_user_knows_better(monkeypatch: pytest.MonkeyPatch) -> None:
    assert given_peak({}) is None
    monkeypatch.setenv("MNTRAIN_PEAK_TFLOPS", "71.2")
    peak = device_peak(torch.device("cpu"), torch.float32)
    assert peak is not None
    assert peak.flops_per_s == pytest.approx(71.2e12)
    assert "MNTRAIN_PEAK_TFLOPS" in peak.source


@pytest.mark.parametrize("text", ["", "many", "0", "-3", "nan", "inf"])
def test_a_given_peak_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="MNTRAIN_PEAK_TFLOPS"):
        given_peak({"MNTRAIN_PEAK_TFLOPS": text})
