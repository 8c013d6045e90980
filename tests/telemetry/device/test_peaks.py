from __future__ import annotations

import pytest
import torch

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.telemetry import known_peak
from jupyter_mntrain.telemetry.device.gemm import device_peak
from jupyter_mntrain.telemetry.device.peaks import given_peak


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
    ],
)
def test_known_devices(name: str, dtype: str, tera: float) -> None:
    peak = known_peak(name, dtype)
    assert peak is not None
    assert peak.flops_per_s == pytest.approx(tera * 1e12)
    assert dtype in peak.source


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bfloat16"),
        ("NVIDIA GeForce RTX 3080 Ti", "bfloat16"),
        ("NVIDIA GeForce RTX 3060 Ti", "bfloat16"),
        ("NVIDIA RTX A5000 Laptop GPU", "bfloat16"),
        ("NVIDIA A30 MIG 1g.6gb", "bfloat16"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "bfloat16"),
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
