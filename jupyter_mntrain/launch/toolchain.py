"""Toolchain: the compilers that torch.compile and triton find on this machine. Imports no torch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from jupyter_mntrain.model.records.node import Tools

PACKAGES = ("triton", "pytorch-triton", "liger-kernel", "torchao", "flash-attn", "peft")
"""Packages that optional parts of recipes import."""


def find_tools(packages: Mapping[str, str], include: str, environment: Mapping[str, str]) -> Tools:
    """Find the compilers that an interpreter can use for kernels.

    Triton takes ``$CC``, else gcc, else clang (``triton/runtime/build.py``); Inductor ``$CXX``,
    else g++ (``torch/_inductor/config.py``).

    Args:
        packages: versions of :data:`PACKAGES`, of those installed for it.
        include: its folder of C headers.
        environment: of its programs.
    """
    path = environment.get("PATH")

    def first(*names: str) -> str | None:
        return next(filter(None, (shutil.which(one, path=path) for one in names)), None)

    own, own_cxx = environment.get("CC"), environment.get("CXX")
    return Tools(
        packages=dict(packages),
        c_compiler=first(own) if own else first("gcc", "clang"),
        cxx_compiler=first(own_cxx) if own_cxx else first("g++"),
        has_headers=Path(include, "Python.h").is_file(),
    )
