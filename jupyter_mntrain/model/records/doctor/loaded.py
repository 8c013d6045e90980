"""Loaded software: what a job's interpreter reports after it has imported torch."""

from __future__ import annotations

from jupyter_mntrain.model._record import Record


class LoadedSoftware(Record, frozen=True):
    """What an interpreter reported about itself, which its packages' metadata may contradict.

    Args:
        python: the interpreter.
        error: last line of why it cannot import torch; empty if it can.
        has_started: otherwise that is why the interpreter itself did not.
        torch: its ``__version__``.
        torch_file: where it was imported from.
        cuda: that torch is built for; ``None`` if for none.
        nccl: version of the library that was loaded; ``None`` if torch is built without.
        devices: GPUs that CUDA sees; ``None`` if torch is built without CUDA, or CUDA fails.
        cuda_error: last line of why CUDA does not start; empty if it does.
        architectures: of GPUs that torch is compiled for, like ``sm_90`` and ``compute_90``.
        transformers: its version, of the package that an import would find.
    """

    python: str
    error: str = ""
    has_started: bool = True
    torch: str | None = None
    torch_file: str = ""
    cuda: str | None = None
    nccl: str | None = None
    devices: int | None = None
    cuda_error: str = ""
    architectures: tuple[str, ...] = ()
    transformers: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether nothing failed, so that asking again would yield nothing new."""
        return not self.error and not self.cuda_error
