"""Device list: speeds of CPUs and GPUs, when they were measured, and what disturbed that."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from jupyter_mntrain.model.records.plan import DeviceMeasurement
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.plan.measured_speeds import layer_flops_per_s
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.tables._plain import plain_table

ALONE = "alone"


def device_list(
    measured: Iterable[tuple[str, DeviceMeasurement]], *, now_s: float
) -> RenderableType:
    """Return one line per device and dtype.

    Args:
        measured: with the name of each one's node.
        now_s: Unix time, for the age.
    """
    table = plain_table(
        *("node", "device", "dtype", "products", "layers", "memory", "measured", "condition"),
        right=("products", "layers", "memory"),
    )
    for node, one in measured:
        largest = max(one.layers, key=lambda layer: (layer.hidden_size, layer.tokens), default=None)
        table.add_row(
            shown_name(node),
            _device(one),
            shown_name(one.dtype),
            formats.flop_rate(one.flops_per_s),
            formats.flop_rate(None if largest is None else layer_flops_per_s(largest)),
            formats.byte_rate(one.bytes_per_s),
            f"{formats.age(now_s - one.time_s)} ago",
            shown_line(one.disturbed) or ALONE,
        )
    return table


def _device(one: DeviceMeasurement) -> str:
    name = shown_name(one.device)
    if one.gpu is not None:
        return f"GPU {one.gpu}, {name}"
    ranks = formats.plural(one.ranks, "rank")
    return f"CPU, {ranks} of {formats.plural(one.threads, 'thread')}, {name}"
