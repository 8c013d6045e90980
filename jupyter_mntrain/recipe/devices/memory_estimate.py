"""Memory that a rank will hold, part by part, as it is shown. Pure."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class MemoryEstimate(Record, frozen=True):
    """Bytes that one rank holds."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    loss: int = 0
    put_off: int = 0
    """Inputs of linear layers, and gradients of their outputs, that are kept until the gradients of
    their weights are computed."""
    transfers: int = 0
    """Receive buffers: torch has one for every microbatch."""
    sent: int = 0
    """Activations and gradients that were sent, until torch forgets them."""
    update: int = 0
    """Temporary float32 copies of the optimizer's step, where they exceed what is freed by then:
    activations and loss."""
    dequantized: int = 0
    """Of the largest weight in 4 bits, while it is computed with: its values, and what they are
    made from."""
    host: int = 0
    """Not part of the total: offloaded activations, and what is kept between rare meetings."""

    @property
    def total(self) -> int:
        return sum(self._parts().values())

    def _parts(self) -> dict[str, int]:
        names = (name for name in self.__struct_fields__ if name != "host")
        return {name: getattr(self, name) for name in names}

    @property
    def shown_parts(self) -> str:
        return " + ".join(
            f"{name} {shown_bytes(size)}" for name, size in self._parts().items() if size
        )

    @property
    def shown_total(self) -> str:
        host = f", and {shown_bytes(self.host)} on the host" if self.host else ""
        return f"{shown_bytes(self.total)}{host}"

    def __str__(self) -> str:
        return f"{self.shown_parts} = {self.shown_total}"


def shown_bytes(size: int) -> str:
    """A size in decimal units, as GPUs are sold."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
