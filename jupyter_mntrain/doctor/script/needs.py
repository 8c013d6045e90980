"""Needs of a script: modules, variables, files and folders, as far as its text tells. Pure."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from jupyter_mntrain.doctor.script.script_arguments import parsed
from jupyter_mntrain.doctor.script.told_paths import PathReader, Told
from jupyter_mntrain.model._record import Record

SET_FOR_RANKS: Final = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?(RANK|WORLD_SIZE)|(LOCAL|CROSS)_SIZE|NNODES"
    r"|MASTER_(ADDR|PORT)|(OMP|MKL|OPENBLAS)_NUM_THREADS|ACCELERATE_USE_CPU"
    r"|PYTHONUNBUFFERED"
    r"|(MNTRAIN|TORCHELASTIC|TORCH|PYTORCH|NCCL|GLOO|TP|CUDA)_\w+"
)
"""Variables that torchrun and a launch set, or may."""

_WRITING: Final = frozenset({"write_text", "write_bytes", "mkdir", "touch"})
_READING: Final = frozenset({"read_text", "read_bytes"})
_WRITERS: Final[Mapping[str, int]] = {
    "makedirs": 0,
    "save_pretrained": 0,
    "torch.save": 1,
    "np.save": 0,
    "save_file": 1,
}
_READERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("torch.load", "np.load", "np.loadtxt", "np.genfromtxt", "from_file"), 0),
    **dict.fromkeys(("load_file", "safe_open", "load_from_disk", "listdir", "scandir"), 0),
    **dict.fromkeys(("read_csv", "read_json", "read_parquet", "read_table", "read_pickle"), 0),
}
"""Functions of many scripts, with the place of the path among their arguments."""
_OPENERS: Final = frozenset(
    {"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open", "Image.open"}
)
"""Functions that take a path and a mode."""
_HARMLESS: Final = re.compile(
    r"print|len|(add_)?argument|getenv|get|join|joinpath|Path|PurePath|str|fspath|expanduser"
    r"|abspath|realpath|resolve|absolute|exists|is_?file|is_?dir|stat|getsize|startswith|endswith"
)
"""Functions that make no file, by their last name."""
_OTHERS: Final = re.compile(r"subprocess\.\w+|os\.(system|popen|exec\w+|spawn\w+)")
"""What runs other programs, which may make any file."""

_LOOKS: Final = re.compile(r"exists|is_file|isfile|is_dir|isdir")


class Need(Record, frozen=True):
    """Something that a line needs.

    Args:
        is_certain: every rank comes to it, whatever happens.
    """

    what: str
    line: int
    is_certain: bool = False


class ScriptNeeds(Record, frozen=True):
    """What a script needs to run.

    Args:
        error: why it is no Python, for the Python of the driver; empty if it is.
        line: of the error.
        modules: that it imports, by their first names, but for what a ``try`` guards.
        names: that it imports from modules, like ``torch.distributed:all_reduce``.
        variables: of its environment that it takes without a default.
        reads, writes: files and folders.
        makes: what it may make, first folders of it alone: all that it writes, or hands to
            functions of which it is not known what they do.
        gpus: what fails where there is no GPU.
        sets: variables of its environment that it sets itself, and to what.
        python: version of the driver's.
        arguments: what its argparse says of the arguments; empty if it takes them, or if its text
            does not tell.
    """

    error: str = ""
    line: int = 0
    modules: tuple[Need, ...] = ()
    names: tuple[Need, ...] = ()
    variables: tuple[Need, ...] = ()
    reads: tuple[Need, ...] = ()
    writes: tuple[Need, ...] = ()
    makes: frozenset[str] = frozenset()
    gpus: tuple[Need, ...] = ()
    sets: dict[str, str] = {}
    python: str = ".".join(map(str, sys.version_info[:2]))
    arguments: str = ""


def read_script(
    text: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> ScriptNeeds:
    """Read what a script needs.

    Args:
        arguments: that it is launched with.
        environment: variables that the launch gives its ranks.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return ScriptNeeds(error=error.msg, line=error.lineno or 0)
    except ValueError as error:  # a null byte
        return ScriptNeeds(error=str(error))
    given, told = environment or {}, parsed(tree, arguments)
    paths = PathReader(given, told, arguments)
    reading = _ScriptReading(paths)
    reading.block(tree.body, is_certain=True)
    unset = [one for one in reading.variables if one.what not in given]
    return ScriptNeeds(
        modules=_first(one for one in reading.modules if one.what != "__future__"),
        names=_first(one for one in reading.names if not one.what.startswith("__future__:")),
        variables=_first(one for one in unset if one.what not in reading.made),
        reads=_first(reading.reads),
        writes=_first(reading.writes),
        gpus=_first(reading.gpus),
        sets=reading.sets,
        makes=frozenset(_made(tree, paths)) | {first_folder(one.what) for one in reading.writes},
        arguments=told.error if told else "",
    )


class _ScriptReading:
    """Goes through a script in the order of its lines."""

    def __init__(self, paths: PathReader) -> None:
        self._paths = paths
        self.modules: list[Need] = []
        self.names: list[Need] = []
        self.variables: list[Need] = []
        self.reads: list[Need] = []
        self.writes: list[Need] = []
        self.gpus: list[Need] = []
        self.made: set[str] = set()
        """Variables that it sets itself."""
        self.sets: dict[str, str] = {}
        """Those of them that it sets in any case, and to what."""

    def block(self, lines: Iterable[ast.stmt], *, is_certain: bool) -> None:
        for line in lines:
            self._statement(line, is_certain=is_certain)

    def _statement(self, line: ast.stmt, *, is_certain: bool) -> None:
        match line:
            case ast.Import(names=names):
                self._import([one.name for one in names], line, is_certain)
            case ast.ImportFrom(module=str() as name, level=0):
                self._import([name], line, is_certain)
                whats = (f"{name}:{one.name}" for one in line.names if one.name != "*")
                self.names += [Need(one, line.lineno, is_certain) for one in whats]
            case ast.Try() | ast.TryStar():
                self.block(line.finalbody, is_certain=is_certain)
            case ast.If(test=test) if _LOOKS.search(ast.unparse(test)):
                self.block(line.orelse, is_certain=False)
            case ast.If(test=test) if "TYPE_CHECKING" in ast.unparse(test):
                self.block(line.orelse, is_certain=is_certain)
            case _:
                inner = isinstance(line, ast.With | ast.Module) and is_certain
                for name in ("body", "orelse"):
                    self.block(getattr(line, name, ()), is_certain=inner)
                for case in getattr(line, "cases", ()):
                    self.block(case.body, is_certain=False)
                self._expressions(line, is_certain)
                self._assign(line, is_certain=is_certain)

    def _import(self, names: Iterable[str], line: ast.stmt, is_certain: bool) -> None:
        self.modules += [Need(one.partition(".")[0], line.lineno, is_certain) for one in names]

    def _assign(self, line: ast.stmt, *, is_certain: bool) -> None:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = line.value if isinstance(line, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name):
                self._paths.assign(target.id, value)
            elif (name := _variable(target)) is not None:
                self.made.add(name)
                if is_certain and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self.sets[name] = value.value

    def _expressions(self, line: ast.stmt, is_certain: bool) -> None:
        """Those of this line alone, without the lines below it."""
        todo = [one for one in ast.iter_child_nodes(line) if not isinstance(one, ast.stmt)]
        while todo:
            node = todo.pop(0)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                if (name := _variable(node)) is not None and not SET_FOR_RANKS.fullmatch(name):
                    self.variables.append(Need(name, node.lineno, is_certain))
            elif isinstance(node, ast.Call):
                self._call(node, is_certain)
            elif isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda):
                is_certain = False  # a part of it may not be reached
            if not isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
                todo += ast.iter_child_nodes(node)

    def _call(self, node: ast.Call, is_certain: bool) -> None:
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if called in ("__import__", "importlib.import_module", "import_module"):
            if node.args and isinstance(node.args[0], ast.Constant):
                self._import([str(node.args[0].value)], node, is_certain)  # type: ignore[arg-type]
            return
        if called.endswith("environ.setdefault") and isinstance(node.args[0], ast.Constant):
            self.made.add(str(node.args[0].value))
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if is_certain and _needs_gpu(node, last):
            self.gpus.append(Need(ast.unparse(node), node.lineno, is_certain))
        if last == "open":
            is_built_in = called in _OPENERS and node.args
            path, mode = (node.args[0], node.args[1:]) if is_built_in else (of, node.args)
            self._note(path, is_certain, is_written=_is_written(mode, node.keywords))
        elif last in _WRITING or last in _READING:
            self._note(of, is_certain, is_written=last in _WRITING)
        for known, is_written in ((_WRITERS, True), (_READERS, False)):
            place = known.get(called, known.get(last))
            if place is not None and len(node.args) > place:
                self._note(node.args[place], is_certain, is_written=is_written)

    def _note(self, path: ast.expr | None, is_certain: bool, *, is_written: bool) -> None:
        told: Told | None = None if path is None else self._paths.of(path)
        if path is None or told is None or not told.path.strip("./"):
            return
        # A folder that somebody gave a script to write to, it does write to.
        need = Need(told.path, path.lineno, is_certain or (is_written and told.is_given))
        (self.writes if is_written else self.reads).append(need)


def _is_written(mode: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    named = [one.value for one in keywords if one.arg == "mode"]
    found = next((one for one in [*mode, *named]), None)
    return isinstance(found, ast.Constant) and bool(set(str(found.value)) & set("wax+"))


def _needs_gpu(node: ast.Call, last: str) -> bool:
    """Whether a call fails where there is no GPU."""
    named = {one.arg: one.value for one in node.keywords}
    given = {"device": named.get("device"), "backend": named.get("backend")}
    if last in ("to", "init_process_group") and node.args:
        given["device" if last == "to" else "backend"] = node.args[0]
    device, backend = (
        one.value if isinstance(one, ast.Constant) else None for one in given.values()
    )
    if last == "init_process_group":
        return backend == "nccl"
    is_moved = last == "cuda" and isinstance(node.func, ast.Attribute) and not node.args
    return is_moved or (isinstance(device, str) and device.partition(":")[0] == "cuda")


def _made(tree: ast.Module, paths: PathReader) -> Iterator[str]:
    """What calls anywhere in a script may make, also where it looks for it first; ``.`` stands for
    anything in the folder that it runs in.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if last == "chdir" or _OTHERS.fullmatch(called):
            yield "."
        is_opener = called in _OPENERS
        if is_opener and not _may_write(node.args[1:], node.keywords):
            continue
        if {called, last} & _READERS.keys() or _HARMLESS.fullmatch(last) or last in _READING:
            continue
        handed = [*node.args, *(one.value for one in node.keywords)]
        if last in _WRITING or (last == "open" and not is_opener):
            handed = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            if last == "open" and not _may_write(node.args, node.keywords):
                continue
        for one in handed:
            told = paths.of(one)
            if told is not None and told.path:
                yield first_folder(told.path)


def first_folder(path: str) -> str:
    """That of a relative path, or its only name; of an absolute one, all of it."""
    return path if path.startswith("/") else next(iter(PurePosixPath(path).parts), ".")


def _may_write(mode: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    """Whether a file may be opened for writing, also by a mode that only running tells."""
    named = [one.value for one in keywords if one.arg == "mode"]
    found = next(iter([*mode, *named]), None)
    is_known = found is None or isinstance(found, ast.Constant)
    return not is_known or _is_written(mode, keywords)


def _variable(node: ast.AST | None) -> str | None:
    """The variable that ``os.environ["…"]`` names."""
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(value=str() as name)):
            return name if ast.unparse(of) in ("os.environ", "environ") else None
    return None


def _first(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Each once: where it is certain, else where it comes first."""
    found: dict[str, Need] = {}
    for one in needs:
        if one.what not in found or (one.is_certain and not found[one.what].is_certain):
            found[one.what] = one
    return tuple(found.values())
