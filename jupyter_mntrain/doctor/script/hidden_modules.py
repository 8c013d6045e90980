"""Hidden modules: modules of Python and torch that files next to a script shadow. Pure.

Python looks in the script's folder first: ``random.py`` there is what torch gets for ``random``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

_NAMES: Final = (
    "argparse array ast asyncio base64 binascii bisect bz2 calendar cmath cmd code "
    "collections colorsys concurrent contextlib contextvars copy copyreg csv ctypes "
    "dataclasses datetime decimal difflib dis email enum fcntl fnmatch fractions functools "
    "gettext glob grp gzip hashlib heapq http importlib inspect ipaddress json keyword "
    "linecache locale logging lzma math mmap multiprocessing ntpath numbers opcode operator "
    "pathlib pdb pickle pickletools pkgutil platform pprint profile pstats queue quopri "
    "random re reprlib runpy select selectors shutil signal socket ssl string struct "
    "subprocess tarfile tempfile textwrap threading timeit token tokenize traceback types "
    "typing unicodedata unittest urllib uuid warnings weakref zipfile zlib "
    "filelock fsspec jinja2 mpmath networkx numpy packaging sympy torch torchgen triton "
    "typing_extensions"
)
IMPORTED: Final = frozenset(_NAMES.split())
"""What ``import torch`` imports that Python has not loaded before (torch 2.13, Python 3.11, by
``sys.modules``), and what torch needs to be installed."""


def hidden_modules(script: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the files or packages that shadow a module.

    Args:
        script: its path, next to ``names``; empty if Python looks in the folder that it runs in.
        names: files that are sent with it.
    """
    folder, found = PurePosixPath(script).parent, set[str]()
    for name in map(PurePosixPath, names):
        if not name.is_relative_to(folder) or name == PurePosixPath(script):
            continue
        parts = name.relative_to(folder).parts
        is_package = len(parts) == 2 and parts[1] == "__init__.py"
        is_module = len(parts) == 1 and name.suffix == ".py"
        if (is_package or is_module) and parts[0].removesuffix(".py") in IMPORTED:
            found.add(parts[0])
    return tuple(sorted(found))
