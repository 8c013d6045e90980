"""Peak table: dense FLOPs per second of known GPUs; an unknown one has no peak.

``sixteen_bit`` is bfloat16 and float16 on tensor cores with float32 accumulation, *dense*
(data sheets headline the sparse number, twice as high; GeForce runs float32 accumulation at half
rate). ``float32`` is without TF32, as torch computes by default; with it, the peak is half of that
of 16 bit on every GPU that has TF32: NVIDIA's with bfloat16, since Ampere (its white papers).

Sources: the vendors' data sheets as collected in torchtitan ``tools/utils.py`` and in
stas00/ml-engineering ``compute/accelerator/README.md``; GeForce by NVIDIA's architecture white
papers, ``2 · FMA per clock and SM · SMs · boost clock`` (256 FMA for 16 bit, 128 for float32);
workstation cards likewise, with 512 FMA for 16 bit. The RTX 3080 of 12 GB has the name of the one
of 10 GB, and 3 % more. The vendor gives no number for a MIG instance: its peak is measured.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping

from jupyter_mntrain.model._record import Record
from jupyter_mntrain.model.environment import PEAK_VARIABLE
from jupyter_mntrain.model.errors import SpecError

SIXTEEN_BIT = frozenset({"bfloat16", "float16"})
_SHEET = "data sheet"
_CLOCKS = "architecture white paper"


class Peak(Record, frozen=True):
    """Peak FLOPs per second of a device, and the source of that number."""

    flops_per_s: float
    source: str


class _Gpu(Record, frozen=True):
    pattern: str
    """Matches the *whole* name: Laptop, Ti, SUPER and MIG variants are different devices."""
    sixteen_bit: float | None
    float32: float | None = None
    source: str = _SHEET
    has_bfloat16: bool = True
    is_nvidia: bool = True


TF32_SHARE = 0.5
_TERA = 1e12
_GPUS = (
    _Gpu(pattern=r"GB200", sixteen_bit=2500),
    _Gpu(pattern=r"B200", sixteen_bit=2250),
    _Gpu(pattern=r"GB300", sixteen_bit=2500, float32=80),
    _Gpu(pattern=r"B300( SXM6 AC)?", sixteen_bit=2250, float32=75),
    _Gpu(pattern=r"H200", sixteen_bit=989, float32=67),
    _Gpu(pattern=r"H200 NVL", sixteen_bit=835, float32=60),
    _Gpu(pattern=r"GH200( \d+GB)?", sixteen_bit=989, float32=67),
    _Gpu(pattern=r"H100( SXM5)?( 80GB)?( HBM3)?", sixteen_bit=989, float32=67),
    _Gpu(pattern=r"H100 PCIe", sixteen_bit=756, float32=51),
    _Gpu(pattern=r"H100 NVL", sixteen_bit=835, float32=60),
    _Gpu(pattern=r"H800", sixteen_bit=989, float32=67),
    _Gpu(pattern=r"H800 PCIe", sixteen_bit=756, float32=51),
    _Gpu(pattern=r"H20", sixteen_bit=148, float32=44),
    _Gpu(pattern=r"A100-(SXM4|PCIE|PG509)-\d+GB|A100 80GB PCIe", sixteen_bit=312, float32=19.5),
    _Gpu(pattern=r"A800-(SXM4|PCIE)-\d+GB|A800 80GB PCIe", sixteen_bit=312, float32=19.5),
    _Gpu(pattern=r"A30", sixteen_bit=165, float32=10.3),
    _Gpu(pattern=r"A40", sixteen_bit=149.7, float32=37.4),
    _Gpu(pattern=r"A10", sixteen_bit=125, float32=31.2),
    _Gpu(pattern=r"L4", sixteen_bit=121, float32=30.3),
    _Gpu(pattern=r"L40", sixteen_bit=181, float32=90.5),
    _Gpu(pattern=r"L40S", sixteen_bit=362, float32=91.6),
    _Gpu(pattern=r"RTX A5000", sixteen_bit=111.1, float32=27.8),
    _Gpu(pattern=r"RTX A6000", sixteen_bit=154.8, float32=38.7),
    _Gpu(pattern=r"RTX 6000 Ada Generation", sixteen_bit=364, float32=91.1),
    _Gpu(
        pattern=r"RTX PRO 6000 Blackwell Workstation Edition",
        sixteen_bit=503.8,
        float32=126,
        source=_CLOCKS,
    ),
    _Gpu(
        pattern=r"RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        sixteen_bit=438.9,
        float32=109.7,
        source=_CLOCKS,
    ),
    _Gpu(pattern=r"T4", sixteen_bit=65, float32=8.1, has_bfloat16=False),
    _Gpu(pattern=r"V100-SXM2-\d+GB", sixteen_bit=125, float32=15.7, has_bfloat16=False),
    _Gpu(
        pattern=r"RTX 2080 Ti", sixteen_bit=53.8, float32=13.4, source=_CLOCKS, has_bfloat16=False
    ),
    _Gpu(pattern=r"RTX 3060", sixteen_bit=25.5, float32=12.7, source=_CLOCKS),
    _Gpu(pattern=r"RTX 3080", sixteen_bit=59.5, float32=29.8, source=_CLOCKS),
    _Gpu(pattern=r"RTX 3090", sixteen_bit=71.2, float32=35.6, source=_CLOCKS),
    _Gpu(pattern=r"RTX 3090 Ti", sixteen_bit=80, float32=40, source=_CLOCKS),
    _Gpu(pattern=r"RTX 4070 Ti", sixteen_bit=80.2, float32=40.1, source=_CLOCKS),
    _Gpu(pattern=r"RTX 4080", sixteen_bit=97.5, float32=48.7, source=_CLOCKS),
    _Gpu(pattern=r"RTX 4080 SUPER", sixteen_bit=104.4, float32=52.2, source=_CLOCKS),
    _Gpu(pattern=r"RTX 4090 D", sixteen_bit=147.1, float32=73.5, source=_CLOCKS),
    _Gpu(pattern=r"RTX 4090", sixteen_bit=165.2, float32=82.6, source=_CLOCKS),
    _Gpu(pattern=r"RTX 5070 Ti", sixteen_bit=87.9, float32=43.9, source=_CLOCKS),
    _Gpu(pattern=r"RTX 5080", sixteen_bit=112.6, float32=56.3, source=_CLOCKS),
    _Gpu(pattern=r"RTX 5090", sixteen_bit=209.5, float32=104.8, source=_CLOCKS),
    _Gpu(
        pattern=r"AMD Instinct MI300X|AMD Instinct MI325X",
        sixteen_bit=1307,
        float32=163.4,
        is_nvidia=False,
    ),
)
_BRAND = re.compile(r"^(NVIDIA |GeForce |Tesla )*", re.IGNORECASE)


def given_peak(environment: Mapping[str, str] = os.environ) -> Peak | None:
    """Return the peak that the user gives for this node's devices, if there is one.

    Raises:
        SpecError: it is not a number above 0.
    """
    text = environment.get(PEAK_VARIABLE)
    if text is None:
        return None
    try:
        tera = float(text)
    except ValueError:
        tera = math.nan
    if not 0 < tera < math.inf:
        cause = f"{PEAK_VARIABLE}={text} is not a number of TFLOP/s"
        raise SpecError(cause, fix="write it like 71.2, or leave it out")
    return Peak(flops_per_s=tera * _TERA, source=f"given by {PEAK_VARIABLE}")


def known_peak(device_name: str, dtype: str, *, tf32: bool = False) -> Peak | None:
    """Look up a GPU by its driver's name for it, e.g. ``NVIDIA GeForce RTX 3090``.

    Args:
        device_name: as ``torch.cuda.get_device_name`` and NVML spell it.
        dtype: of the matrices: ``bfloat16``, ``float16`` or ``float32``.
        tf32: whether float32 matrices are multiplied as TF32, where the GPU can.
    """
    has_tf32 = tf32 and dtype == "float32"
    name = _BRAND.sub("", device_name.strip())
    for gpu in _GPUS:
        if re.fullmatch(gpu.pattern, name, re.IGNORECASE):
            may_have = gpu.has_bfloat16 and gpu.is_nvidia
            if has_tf32 and may_have and gpu.sixteen_bit is not None:
                flops_per_s = gpu.sixteen_bit * TF32_SHARE * _TERA
                return Peak(flops_per_s=flops_per_s, source=f"{gpu.source}, TF32")
            value = _value(gpu, dtype)
            if value is None:
                return None
            return Peak(flops_per_s=value * _TERA, source=f"{gpu.source}, {dtype}")
    return None


def _value(gpu: _Gpu, dtype: str) -> float | None:
    if dtype == "float32":
        return gpu.float32
    if dtype not in SIXTEEN_BIT or (dtype == "bfloat16" and not gpu.has_bfloat16):
        return None
    return gpu.sixteen_bit
