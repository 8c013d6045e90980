"""Needs of a script: modules, variables, files and folders, as far as its source shows. Pure."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from jupyter_mntrain.doctor.script.lightning import ToldNodes, told_nodes
from jupyter_mntrain.doctor.script.script_arguments import parsed
from jupyter_mntrain.doctor.script.told_paths import PathReader, Told
from jupyter_mntrain.model._record import Record

SET_FOR_RANKS: Final = re.compile(
    r"(LOCAL_|GROUP_|ROLE_|NODE_|CROSS_)?(RANK|WORLD_SIZE)|(LOCAL|CROSS)_SIZE|NNODES|ROLE_NAME"
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
    **dict.fromkeys(("memmap", "OmegaConf.load", "imread", "read_image", "fromfile"), 0),
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
    r"|load_dotenv|abspath|realpath|resolve|absolute|stat|getsize|startswith|endswith|device"
)
"""Functions that make no file, by their last name."""
_OTHERS: Final = re.compile(r"subprocess\.\w+|os\.(system|popen|exec\w+|spawn\w+)")
"""Calls that run other programs, which may create any file."""

_LOOKS: Final = re.compile(r"exists|is_file|isfile|is_dir|isdir")
_MAIN: Final = frozenset({"__name__ == '__main__'", "'__main__' == __name__"})
_EXITS: Final = re.compile(r"((sys|os|parser)\.)?_?(exit|quit|abort|error)|os\.exec\w+")
"""Calls that end a script: nothing below one is certain to be reached."""
_PLAIN_DECORATORS: Final = re.compile(r"(.*\.)?(record|no_grad|inference_mode)(\(\))?")
"""Decorators that call what they decorate."""
_PLAIN_CONTEXTS: Final = re.compile(r"(torch|np|dist|tempfile)\..*|open\(.*|.*\.open\(.*")
"""Context managers that let every error through, as ``contextlib.suppress`` does not."""
_MORE_MODULES: Final = re.compile(
    r"sys\.(path|modules|meta_path|path_hooks)\b.*|site\..*|.*\bpip\b.*|.*\bconda\b.*"
)
"""Expressions after which Python may find modules that it does not find before the start."""
_FINDERS: Final = re.compile(
    r"(sys|site|os|subprocess)\..*|(.*\.)?(run|call|check_call|check_output|system|Popen|main)"
)
"""Calls that may be such expressions."""
_MORE_VARIABLES: Final = re.compile(r"(.*\.)?(load_dotenv|putenv)|exec|runpy\.\w+")
"""Calls after which the environment may have more variables."""
_ENVIRONMENT: Final = re.compile(r"(os\.)?environ\b")
_ONLY_READ: Final = frozenset({"get", "pop", "has_key", "keys", "items", "values", "copy"})
"""Methods of the environment that add no variable."""
_ONLY_READERS: Final = frozenset({"dict", "len", "list", "print", "set", "sorted"})
"""Functions that are given the environment, and add none."""
_GETS: Final = re.compile(r"(os\.)?(getenv|environ\.(get|pop|has_key|setdefault))")
_OF_GPUS: Final = re.compile(r"gpu|cuda|accelerator|device_count", re.IGNORECASE)
_ASSERTED: Final = "assert torch.cuda.is_available()"
_NEW_NAMES: Final = re.compile(r"exec|(globals|locals|vars)\(\)\.update")
"""Calls after which any variable of the script may be another."""


class Need(Record, frozen=True):
    """One thing that a line of a script needs.

    Args:
        is_certain: every rank comes to it, whatever happens.
    """

    what: str
    line: int
    is_certain: bool = False


class ScriptNeeds(Record, frozen=True):
    """Everything that a script needs to run.

    Args:
        error: why it is no Python, for the Python of the driver; empty if it is.
        line: of the error.
        modules: that it imports, by their first names, except those that a ``try`` or a condition
            guards.
        names: that it imports from modules, like ``torch.distributed:all_reduce``.
        variables: of its environment that it takes without a default.
        asks: variables that it takes if they are there.
        reads, writes: files and folders.
        loads: files that it takes if they are there.
        makes: what it may make, first folders of it alone: all that it writes, or hands to
            functions of which it is not known what they do.
        gpus: what fails where there is no GPU.
        sets: variables of its environment that it sets itself, and to what.
        may_set: variables that it may set anywhere; ``*`` stands for any.
        finds_more: it may change where Python looks for modules.
        python: version of the driver's.
        nodes: that it tells Lightning.
        arguments: what its argparse says of the arguments; empty if it takes them, or if its text
            does not tell.
    """

    error: str = ""
    line: int = 0
    modules: tuple[Need, ...] = ()
    names: tuple[Need, ...] = ()
    variables: tuple[Need, ...] = ()
    asks: tuple[Need, ...] = ()
    reads: tuple[Need, ...] = ()
    loads: tuple[Need, ...] = ()
    writes: tuple[Need, ...] = ()
    makes: frozenset[str] = frozenset()
    gpus: tuple[Need, ...] = ()
    sets: dict[str, str] = {}
    may_set: frozenset[str] = frozenset()
    finds_more: bool = False
    python: str = ".".join(map(str, sys.version_info[:2]))
    nodes: tuple[ToldNodes, ...] = ()
    arguments: str = ""


def read_script(
    text: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    name: str = "",
    is_main: bool = True,
) -> ScriptNeeds:
    """Find out what a script needs. A function is read where it is certain to be called.

    Args:
        arguments: that it is launched with.
        environment: variables that the launch gives its ranks.
        name: its path, from the folder that it runs in.
        is_main: otherwise somebody imports it.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return ScriptNeeds(error=error.msg, line=error.lineno or 0)
    except ValueError as error:  # a null byte
        return ScriptNeeds(error=str(error))
    given, told = environment or {}, parsed(tree, arguments)
    paths = PathReader(given, told, arguments, name)
    reading = _ScriptReading(paths, tree, is_main=is_main)
    reading.block(tree.body, is_certain=True)
    calls = [(one, ast.unparse(one.func)) for one in ast.walk(tree) if isinstance(one, ast.Call)]
    own = {*given, *reading.made}
    return ScriptNeeds(
        modules=_first(one for one in reading.modules if one.what != "__future__"),
        names=_first(one for one in reading.names if not one.what.startswith("__future__:")),
        variables=_first(one for one in reading.variables if one.what not in own),
        asks=_first(one for one in reading.asks if one.what not in {*given, *reading.may_set}),
        reads=_first(reading.reads),
        loads=_first(reading.loads),
        writes=_first(reading.writes),
        gpus=_first(reading.gpus),
        sets=reading.sets,
        may_set=frozenset(reading.may_set),
        finds_more=bool(reading.finders),
        makes=frozenset(one for _ in paths.moments() for one in _made(calls, paths))
        | {first_folder(one.what) for one in reading.writes},
        nodes=told_nodes(tree),
        arguments=told.error if told else "",
    )


class _ScriptReading:
    """Reads a script statement by statement, in order."""

    def __init__(self, paths: PathReader, tree: ast.Module, *, is_main: bool) -> None:
        self._paths, self._is_main = paths, is_main
        self._functions = {
            one.name: one
            for one in ast.walk(tree)
            if isinstance(one, ast.FunctionDef) and _runs_when_called(one)
        }
        self._may_have_returned = self._may_have_ended = False
        """A line before may have ended the function that is read, or the script."""
        self._is_default = False
        """It may have set any of its variables by what is not read here, as nanoGPT does."""
        self._conditions = 0
        """Number of conditions around the current statement."""
        self.modules: list[Need] = []
        self.names: list[Need] = []
        self.variables: list[Need] = []
        self.asks: list[Need] = []
        self.reads: list[Need] = []
        self.loads: list[Need] = []
        self.writes: list[Need] = []
        self.gpus: list[Need] = []
        self.made: set[str] = set()
        """Variables that it sets itself, or asks for before it takes them."""
        self.sets: dict[str, str] = {}
        """Those of them that it sets in any case, and to what."""
        self._has_more_modules = self._has_more_variables = False
        self.may_set = _set_variables(tree)
        self.finders = [
            one.lineno
            for one in ast.walk(tree)
            if isinstance(one, ast.stmt | ast.expr) and _finds_more(one)
        ]
        """Lines after which Python may find other modules."""

    def block(self, lines: Iterable[ast.stmt], *, is_certain: bool) -> None:
        for line in lines:
            may_be_over = self._may_have_returned or self._may_have_ended
            self._statement(line, is_certain=is_certain and not may_be_over)
            self._may_have_returned |= is_certain and _returns(line)
            self._may_have_ended |= is_certain and _exits(line)

    def _statement(self, line: ast.stmt, *, is_certain: bool) -> None:
        self._note_guards(line)
        # Whatever stands in it, also in a function that is called later.
        last = line.end_lineno or line.lineno
        self._has_more_modules |= any(line.lineno <= at <= last for at in self.finders)
        anything = self.may_set.get("*", ())
        self._has_more_variables |= any(line.lineno <= at <= last for at in anything)
        match line:
            case ast.Import(names=names):
                self._import([one.name for one in names], line, is_certain)
            case ast.ImportFrom(module=str() as name, level=0):
                self._import([name], line, is_certain)
                if not self._conditions:
                    whats = (f"{name}:{one.name}" for one in line.names if one.name != "*")
                    is_there = is_certain and not self._has_more_modules
                    self.names += [Need(one, line.lineno, is_there) for one in whats]
            case ast.Try() | ast.TryStar():
                self._forget([*line.body, *line.handlers, *line.orelse])
                self.block(line.finalbody, is_certain=is_certain)
            case ast.With() if not all(_lets_errors_through(one) for one in line.items):
                self._forget(line.body)
            case ast.If():
                self._if(line, is_certain=is_certain)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._definition(line)
            case _:
                self._expressions(line, is_certain)
                self._note_assertion(line, is_certain=is_certain)
                self._assign(line, is_certain=is_certain)
                inner = isinstance(line, ast.With) and is_certain
                for name in ("body", "orelse"):
                    self.block(getattr(line, name, ()), is_certain=inner)
                for case in getattr(line, "cases", ()):
                    self._branch(case.body)

    def _definition(self, line: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._expressions(line, is_certain=False)
        if isinstance(line, ast.ClassDef):
            self.block(line.body, is_certain=False)
            self._forget(line.body)
            return
        with self._paths.function(line):
            self.block(line.body, is_certain=False)

    def _if(self, line: ast.If, *, is_certain: bool) -> None:
        asked = ast.unparse(line.test)
        if asked in _MAIN:
            self.block(line.body, is_certain=is_certain and self._is_main)
        elif _LOOKS.search(asked):
            self._forget(line.body)
            self._branch(line.orelse)
        elif "TYPE_CHECKING" in asked:
            self.block(line.orelse, is_certain=is_certain)
        else:
            self._expressions(line, is_certain)
            self._note_lack_of_gpus(line, is_certain=is_certain)
            self._branch(line.body)
            self._branch(line.orelse)

    def _branch(self, lines: Iterable[ast.stmt]) -> None:
        """Read statements that only some ranks may reach."""
        self._conditions += 1
        self.block(lines, is_certain=False)
        self._conditions -= 1

    def _forget(self, lines: Iterable[ast.AST]) -> None:
        """Mark everything that is assigned in lines which are not read as unknown."""
        for node in (each for line in lines for each in ast.walk(line)):
            if isinstance(node, ast.stmt):
                self._note_guards(node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self._paths.assign(node.id, None)
            elif isinstance(node, ast.Subscript) and (name := _variable(node)) is not None:
                self.made.add(name)

    def _note_guards(self, line: ast.AST) -> None:
        """Note the variables that a line checks for: what uses them later is guarded."""
        todo = [line]
        while todo:
            node = todo.pop()
            todo += (one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt))
            match node:
                case ast.Compare(
                    left=ast.Constant(value=str() as name), ops=[ast.In() | ast.NotIn()]
                ) if _is_of_environment(node.comparators[0]):
                    self.made.add(name)
                case ast.Call(args=[ast.Constant(value=str() as name), *_]) if _GETS.fullmatch(
                    ast.unparse(node.func)
                ):
                    self.made.add(name)

    def _note_assertion(self, line: ast.stmt, *, is_certain: bool) -> None:
        if isinstance(line, ast.Assert) and is_certain and _ASSERTED in ast.unparse(line):
            self.gpus.append(Need(ast.unparse(line.test), line.lineno, is_certain=True))

    def _note_lack_of_gpus(self, line: ast.If, *, is_certain: bool) -> None:
        """Note that the script ends if there are no GPUs, or too few."""
        asked = ast.unparse(line.test)
        is_lack = asked.startswith("not ") or isinstance(line.test, ast.Compare)
        if not (is_certain and is_lack and _OF_GPUS.search(asked)):
            return
        last = line.body[-1]
        fails = isinstance(last, ast.Raise) and asked == "not torch.cuda.is_available()"
        if fails or ((_returns(last) or _exits(last)) and not line.orelse):
            self.gpus.append(Need(f"if {asked}", line.lineno, fails))

    def _follow(self, node: ast.Call, called: str, is_certain: bool) -> None:
        """Read a function of the script if this call is certain to happen."""
        if called.rpartition(".")[2] == "spawn" and node.args:
            called = ast.unparse(node.args[0])
        if not is_certain or called not in self._functions:
            return
        own = self._functions.pop(called)
        with self._paths.function(own):
            self.block(own.body, is_certain=True)
        self._may_have_returned = False

    def _import(self, names: Iterable[str], line: ast.stmt, is_certain: bool) -> None:
        if not self._conditions:
            is_certain = is_certain and not self._has_more_modules
            self.modules += [Need(one.partition(".")[0], line.lineno, is_certain) for one in names]
        bound = line.names if isinstance(line, ast.Import | ast.ImportFrom) else ()
        for one in bound:
            self._paths.assign((one.asname or one.name).partition(".")[0], None)

    def _assign(self, line: ast.stmt, *, is_certain: bool) -> None:
        targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
        value = line.value if isinstance(line, ast.Assign | ast.AnnAssign) else None
        for target in targets:
            if isinstance(target, ast.Name):
                self._paths.assign(target.id, value)
            elif (name := _variable(target)) is not None:
                self.made.add(name)
                self.sets.pop(name, None)
                if is_certain and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self.sets[name] = value.value
            elif target is not None:
                self._forget([target])

    def _expressions(self, line: ast.stmt, is_certain: bool) -> None:
        """Read the expressions of one statement, without the statements nested in it."""
        todo = [one for one in ast.iter_child_nodes(line) if not isinstance(one, ast.stmt)]
        is_asked = bool(self._conditions)
        while todo:
            node = todo.pop(0)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                name = None if is_asked else _variable(node)
                is_set = self._has_more_variables or SET_FOR_RANKS.fullmatch(name or "")
                if name is not None and not is_set:
                    self.variables.append(Need(name, node.lineno, is_certain))
            elif isinstance(node, ast.Call):
                self._call(node, is_certain)
            elif isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda):
                is_certain, is_asked = False, True  # a part of it may not be reached
            if not isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
                todo += ast.iter_child_nodes(node)

    def _call(self, node: ast.Call, is_certain: bool) -> None:
        called = ast.unparse(node.func)
        last = called.rpartition(".")[2]
        if called in ("__import__", "importlib.import_module", "import_module"):
            if name := imported_name(node):
                self._import([name], node, is_certain)  # type: ignore[arg-type]
            return
        asked = _asked_variable(node, called)
        if asked is not None and not SET_FOR_RANKS.fullmatch(asked):
            self.asks.append(Need(asked, node.lineno, is_certain))
        if _NEW_NAMES.fullmatch(called):
            self._is_default = True
            self._paths.forget()
        self._follow(node, called, is_certain)
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if is_certain and self._needs_gpu(node, called, last):
            # Of an argument's value, -1 changes nothing.
            may_be_none = last == "set_device" and isinstance(node.args[0], ast.Attribute)
            is_sure = not (self._is_default or may_be_none)
            self.gpus.append(Need(ast.unparse(node), node.lineno, is_sure))
        if last == "open":
            is_built_in = called in _OPENERS and node.args
            path, mode = (node.args[0], node.args[1:]) if is_built_in else (of, node.args)
            self._note(path, is_certain, is_written=_is_written(mode, node.keywords))
        elif last in _WRITING or last in _READING:
            self._note(of, is_certain, is_written=last in _WRITING)
        self._load(node, last, is_certain)
        for known, is_written in ((_WRITERS, True), (_READERS, False)):
            place = known.get(called, known.get(last))
            if place is not None and len(node.args) > place:
                is_made = is_written or (last == "memmap" and _is_written((), node.keywords))
                self._note(node.args[place], is_certain, is_written=is_made)

    def _load(self, node: ast.Call, last: str, is_certain: bool) -> None:
        """Note what ``load_dotenv`` loads, and what torch's ``cpp_extension.load`` compiles."""
        if last == "load_dotenv":
            named = next((told.path for one in node.args if (told := self._paths.of(one))), "")
            self.loads.append(Need(named or ".env", node.lineno))
        given = [one.value for one in node.keywords if one.arg == "sources"]
        match given or node.args[1:2]:
            case [ast.List(elts=found) | ast.Tuple(elts=found)] if last == "load":
                for one in found:
                    self._note(one, is_certain, is_written=False)

    def _needs_gpu(self, node: ast.Call, called: str, last: str) -> bool:
        """Whether a call fails on a machine without GPUs."""
        named = {one.arg: one.value for one in node.keywords}
        given = {"device": named.get("device"), "backend": named.get("backend")}
        if last in ("to", "init_process_group") and node.args:
            given["device" if last == "to" else "backend"] = node.args[0]
        told = {name: None if one is None else self._paths.of(one) for name, one in given.items()}
        device, backend = (None if one is None else one.text for one in told.values())
        if last == "init_process_group":
            return backend == "nccl"
        if called in ("torch.cuda.set_device", "cuda.set_device"):
            return bool(node.args) and not _is_none(node.args[0])
        is_moved = last == "cuda" and isinstance(node.func, ast.Attribute) and not node.args
        # What another function does with a device is its own business: it may fall back.
        is_of_torch = called.startswith("torch.") or last in ("to", "to_empty")
        is_on_gpu = device is not None and device.partition(":")[0] == "cuda"
        return is_moved or (is_of_torch and is_on_gpu)

    def _note(self, path: ast.expr | None, is_certain: bool, *, is_written: bool) -> None:
        told: Told | None = None if path is None else self._paths.of(path)
        if path is None or told is None or not told.path.strip("./"):
            return
        # A folder that a script is given for its output is written to.
        is_certain = is_certain and not self._is_default
        need = Need(told.path, path.lineno, is_certain or (is_written and told.is_given))
        (self.writes if is_written else self.reads).append(need)


def _is_written(mode: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    named = [one.value for one in keywords if one.arg == "mode"]
    found = next((one for one in [*mode, *named]), None)
    return isinstance(found, ast.Constant) and bool(set(str(found.value)) & set("wax+"))


def _runs_when_called(own: ast.FunctionDef) -> bool:
    """Whether calling a function runs its body; a generator's body waits."""
    is_plain = all(_PLAIN_DECORATORS.fullmatch(ast.unparse(one)) for one in own.decorator_list)
    return is_plain and not any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(own))


def _inner(line: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and everything in it, except functions and classes that it defines."""
    todo = [line]
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield node
            todo += ast.iter_child_nodes(node)


def _returns(line: ast.AST) -> bool:
    return any(isinstance(one, ast.Return) for one in _inner(line))


def _exits(line: ast.AST) -> bool:
    """Whether a line may end a script without an error."""
    for one in _inner(line):
        if isinstance(one, ast.Call) and _EXITS.fullmatch(ast.unparse(one.func)):
            return True
        if isinstance(one, ast.Raise) and "SystemExit" in ast.unparse(one):
            return True
    return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _lets_errors_through(item: ast.withitem) -> bool:
    return bool(_PLAIN_CONTEXTS.fullmatch(ast.unparse(item.context_expr)))


def _is_of_environment(node: ast.AST) -> bool:
    return bool(_ENVIRONMENT.match(ast.unparse(node)))


def _finds_more(node: ast.AST) -> bool:
    """Whether a node may change where Python looks for modules."""
    match node:
        case ast.Call():
            if not _FINDERS.fullmatch(ast.unparse(node.func)):
                return False  # its text is long, and seldom needed
            return bool(_MORE_MODULES.fullmatch(ast.unparse(node).replace("\n", " ")))
        case ast.Assign(targets=targets):
            return any(_MORE_MODULES.fullmatch(ast.unparse(one)) for one in targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return bool(_MORE_MODULES.fullmatch(ast.unparse(target)))
        case ast.ImportFrom(module="sys" | "site", names=names):
            return any(one.name in ("path", "modules", "addsitedir") for one in names)
    return False


def _set_variables(tree: ast.AST) -> dict[str, list[int]]:
    """Return the environment variables that are set anywhere in a script, with their lines.

    ``*`` stands for any variable: code that gets the whole environment may add to it.
    """
    found, harmless = dict[str, list[int]](), set[int]()
    for node in ast.walk(tree):
        names = _set_by(node)
        harmless |= {id(one) for one in _only_read(node)}
        # What holds it comes before it.
        if _is_environment(node) and id(node) not in harmless:
            names.add("*")
        for name in names:
            found.setdefault(name, []).append(getattr(node, "lineno", 0))
    return found


def _set_by(node: ast.AST) -> set[str]:
    match node:
        case (
            ast.Call(
                func=ast.Attribute(value=of, attr="setdefault"), args=[ast.Constant(value=name), _]
            )
            | ast.Subscript(value=of, slice=ast.Constant(value=name), ctx=ast.Store())
        ) if _is_environment(of):
            return {str(name)}
        case ast.Call(func=called) if _MORE_VARIABLES.fullmatch(ast.unparse(called)):
            return {"*"}
        case ast.ImportFrom(module="os", names=names):
            return {"*" for one in names if one.name == "environ" and one.asname}
    return set()


def _only_read(node: ast.AST) -> list[ast.AST]:
    """Return the parts of a node that may be ``os.environ`` and set no unnamed variable in it.

    They are only read, or set variables that the source names.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=args) if name in _ONLY_READERS:
            return [*args]
        case (
            ast.Call(func=ast.Attribute(value=of, attr="setdefault"), args=[ast.Constant(), *_])
            | ast.Subscript(value=of, slice=ast.Constant())
        ):
            return [of]
        case ast.Call(func=ast.Attribute(value=of, attr=name)) if name in _ONLY_READ:
            return [of]
        case ast.Subscript(value=of, ctx=ast.Load() | ast.Del()):
            return [of]
        case ast.Compare(comparators=asked):
            return [*asked]
        case ast.Dict(keys=keys, values=values):
            return [one for key, one in zip(keys, values, strict=True) if key is None]
        case ast.keyword(arg="env", value=of) | ast.FormattedValue(value=of):
            return [of]
        case ast.For(iter=of) | ast.comprehension(iter=of):
            return [of]
    return []


def _is_environment(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="environ" | "environb") | ast.Name(id="environ"):
            return True
    return False


def imported_name(call: ast.Call) -> str:
    """Return the module that ``import_module("…")`` names; empty if the source does not tell."""
    match call.args:
        case [ast.Constant(value=str() as name), *_]:
            return "" if name.startswith(".") else name
    return ""


def _made(calls: Iterable[tuple[ast.Call, str]], paths: PathReader) -> Iterator[str]:
    """Yield the first folders of what calls in a script may create or look for.

    ``.`` stands for anything: another program may create it, or the working directory changes.
    """
    for node, called in calls:
        last = called.rpartition(".")[2]
        if last == "chdir" or _OTHERS.fullmatch(called):
            yield "."
        is_opener = called in _OPENERS
        if is_opener and not _may_write(node.args[1:], node.keywords):
            continue
        if {called, last} & _READERS.keys() or _HARMLESS.fullmatch(last) or last in _READING:
            continue
        handed = [*node.args, *(one.value for one in node.keywords)]
        is_looked = _LOOKS.fullmatch(last) and not node.args
        if is_looked or last in _WRITING or (last == "open" and not is_opener):
            handed = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            if last == "open" and not _may_write(node.args, node.keywords):
                continue
        for one in handed:
            told = paths.of(one)
            if told is not None and told.path:
                yield first_folder(told.path)


def may_make(script: ScriptNeeds, path: str) -> bool:
    """Whether a script may create a file before it reads it, perhaps on another rank."""
    if "." in script.makes or first_folder(path) in script.makes:
        return True
    own = PurePosixPath(path)
    made = [PurePosixPath(one) for one in script.makes if one.startswith(("/", "~"))]
    return any(own.is_relative_to(one) or one.is_relative_to(own) for one in made)


def first_folder(path: str) -> str:
    """Return the first part of a relative path; an absolute path as it is."""
    return path if path.startswith(("/", "~")) else next(iter(PurePosixPath(path).parts), ".")


def _may_write(mode: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    """Whether a file may be opened for writing; also true if the mode is not known."""
    named = [one.value for one in keywords if one.arg == "mode"]
    found = next(iter([*mode, *named]), None)
    is_known = found is None or isinstance(found, ast.Constant)
    return not is_known or _is_written(mode, keywords)


def _variable(node: ast.AST | None) -> str | None:
    """Return the variable that ``os.environ["…"]`` names."""
    match node:
        case ast.Subscript(value=of, slice=ast.Constant(value=str() as name)):
            return name if ast.unparse(of) in ("os.environ", "environ") else None
    return None


def _asked_variable(call: ast.Call, called: str) -> str | None:
    """Return the variable that ``os.getenv("…")`` or ``os.environ.get("…")`` names."""
    if called not in ("os.getenv", "getenv", "os.environ.get", "environ.get"):
        return None
    match call.args:
        case [ast.Constant(value=str() as name), *_]:
            return name
    return None


def _first(needs: Iterable[Need]) -> tuple[Need, ...]:
    """Return each need once, at the first line where it is certain, or else at the first of all."""
    found: dict[str, Need] = {}
    for one in needs:
        if one.what not in found or (one.is_certain and not found[one.what].is_certain):
            found[one.what] = one
    return tuple(found.values())
