"""Values: variables of a rank as they are sent, and back. Nothing is pickled."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
import numpy as np
import torch

from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.quantities import size_text
from jupyter_mntrain.model.records.session import LARGEST_FRAME, Value

ROOM_BYTES: Final = 2**16
"""Of a frame, for all but a value's data."""


def packed(value: object, name: str) -> Value:
    """Return a value as it is sent.

    Args:
        value: a tensor, an array of numbers, or what JSON can say.

    Raises:
        SpecError: it is something else, or too large for one frame.
    """
    if isinstance(value, torch.Tensor):
        dense = value.detach().to("cpu").contiguous()
        if dense.layout is not torch.strided or dense.is_quantized:
            raise SpecError(f"{name} is a sparse or quantized tensor", fix=f"{name}.to_dense()")
        data = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
        dtype = str(dense.dtype).removeprefix("torch.")
        found = Value("torch", data, dtype, tuple(dense.shape))
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        array = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
        found = Value("numpy", array.tobytes(), array.dtype.str, np.shape(value))
    else:
        try:
            data = msgspec.json.encode(value)
            is_same = msgspec.json.decode(data) == value
        except (TypeError, ValueError, msgspec.MsgspecError, OverflowError, RecursionError):
            is_same = False
        if not is_same:
            kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise SpecError(
                f"{name} is of {kind}: only tensors, arrays of numbers and what JSON can say are "
                "sent",
                fix="send its tensors, for instance of state_dict(), one by one",
            )
        found = Value("json", data)
    if len(found.data) > LARGEST_FRAME - ROOM_BYTES:
        raise SpecError(
            f"{name} has {size_text(len(found.data))}, and one transfer at most "
            f"{size_text(LARGEST_FRAME - ROOM_BYTES)}",
            fix="save it to a file of the session, and fetch that: mntrain pull SESSION",
        )
    return found


def unpacked(value: Value) -> Any:
    """Return what was packed.

    Raises:
        SpecError: its parts do not fit each other.
    """
    try:
        if value.kind == "json":
            return msgspec.json.decode(value.data)
        if value.kind == "numpy":
            array = np.frombuffer(bytearray(value.data), np.dtype(value.dtype))
            return array.reshape(value.shape)
        dtype = getattr(torch, value.dtype)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(value.dtype)
        if not math.prod(value.shape):
            return torch.empty(value.shape, dtype=dtype)
        return (
            torch.frombuffer(bytearray(value.data), dtype=torch.uint8)
            .view(dtype)
            .reshape(value.shape)
        )
    except (AttributeError, TypeError, ValueError, RuntimeError, msgspec.MsgspecError) as error:
        raise SpecError(f"a value that does not fit: {error}") from error
