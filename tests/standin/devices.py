"""Measured devices, in one line each."""

from __future__ import annotations

from typing import Any

from jupyter_mntrain.model.records.plan import DeviceMeasurement, MeasuredLayer

CPU = "EPYC"


def layer(tokens: int, seconds: float, hidden_size: int = 256, rate: float = 1e11) -> MeasuredLayer:
    """Args: seconds: of both passes, the backward pass taking twice the forward's."""
    return MeasuredLayer(
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 5 // 2,
        tokens=tokens,
        forward_s=seconds / 3,
        backward_s=2 * seconds / 3,
        product_flops_per_s=rate,
    )


def device(dtype: str = "float32", flops_per_s: float = 1e11, **fields: Any) -> DeviceMeasurement:
    """A CPU with 4 cores that was measured for 1 rank, unless ``fields`` say something else."""
    basis: dict[str, Any] = {
        "gpu": None,
        "device": CPU,
        "dtype": dtype,
        "time_s": 5.0,
        "flops_per_s": flops_per_s,
        "bytes_per_s": 2e10,
        "operation_s": 2e-6,
        "threads": 4,
        "cpus": 4.0,
        "torch": "2.13.0",
    }
    return DeviceMeasurement(**(basis | fields))
