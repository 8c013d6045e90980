"""House rules: no cycles, one spelling, no riddles, and no code that reads a sentence of ours."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

BRITISH = re.compile(
    r"""
        (optim|initial|summar|util|serial|normal|recogn|organ|synchron|token|visual|minim|maxim
         |general|real|quant|random|special|final|categor|custom|priorit|standard|vector|material
         |stabil|author|canonical|sanit|penal|memor|item|local|parametr|discret|regular|factor
         |capital|anonym|modern|container|apolog)is(e[drs]?|ers|ing|ations?)\b
      | (behavi|col|fav|hon|lab|neighb|flav|harb|rum|vap|hum|endeav|arm)our
      | (cancel|label|travel|signal|channel|model|level|tunnel|total|equal|counsel|fuel)
        (led|ling|ler|lers)\b
      | diall(er|ed|ing)
      | analys(e[dr]?|ers|ing)\b
      | licence | catalogue | grey | defence | offence | judgement | acknowledgement | artefact
      | whilst | amongst | misspelt | spelt | learnt | burnt | centre | metre | programme\b
      | ageing | fulfil\b | enrol\b | skilful | sceptic | manoeuvre | aluminium | dependant
    """,
    re.IGNORECASE | re.VERBOSE,
)
NOT_OURS = re.compile(r'CancelledError|CANCELLED|\.cancelled\(|qdisc|"image/png": "[^"]*"')
"""Names of other libraries and of SLURM, and pictures in base64."""

RIDDLES = re.compile(
    r"(?i:nobody there|is nothing an? |whoever hung up|not for want of|of it ours|it has joined\?"
    r"|leave it with the nodes|nothing is to be done|get(s|ting)? on by itself|does not get on)"
    r"|is none$",
    re.MULTILINE,
)


def tracked(*places: str) -> list[Path]:
    """Text files of the repository below these places."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *places]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    binary = (".png", ".svg", ".gz", ".lock")
    return sorted(ROOT / name for name in names if not name.endswith(binary))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


MODULES = tracked("jupyter_mntrain/*.py")


def text(path: Path) -> str:
    return NOT_OURS.sub("", path.read_text())


def test_no_module_imports_itself_by_way_of_others():
    """Imports for types alone and within functions count, too."""
    import grimp

    graph = grimp.build_graph("jupyter_mntrain", exclude_type_checking_imports=False)
    # The package's __init__ loads rooms on first use.
    modules = graph.modules - {"jupyter_mntrain"}
    imports = {one: graph.find_modules_directly_imported_by(one) & modules for one in modules}
    while True:
        imported = set().union(*imports.values())
        left = {one: others & imports.keys() for one, others in imports.items() if one in imported}
        left = {one: others for one, others in left.items() if others}
        if left == imports:
            break
        imports = left
    assert imports == {}


def test_spelling_is_american():
    paths = tracked("jupyter_mntrain", "tests", "benchmarks", "scripts", "docs", "notebooks")
    paths += tracked("labextension/src", "labextension/ui-tests/tests", "*.md", "pyproject.toml")
    paths.remove(Path(__file__))
    paths = [path for path in paths if path.suffix != ".jinja"]  # chat templates of others' models
    words = {path: set(re.findall(r"[A-Za-z]+", text(path))) for path in paths}
    british = {word for word in set().union(*words.values()) if BRITISH.search(word)}
    assert [f"{name(path)}: {one}" for path in paths for one in british & words[path]] == []


def test_no_sentence_is_a_riddle():
    paths = tracked("jupyter_mntrain", "docs", "notebooks", "labextension/src", "*.md")
    found = {f"{name(path)}: {one[0]}" for path in paths for one in RIDDLES.finditer(text(path))}
    assert sorted(found) == []


WORDED_BY = {
    "jupyter_mntrain/command_line/needed_packages.py",  # before a record can be imported
    "jupyter_mntrain/model/failure/problem.py",
    "labextension/src/problem.tsx",
}
"""Where a problem is put into words."""

SENTENCES = frozenset({"cause", "fix", "headline", "fix_line", "stop_reason"})
SPOKEN = frozenset({"problem", "error"})
SEARCHES = frozenset(
    {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "find", "index"}
    | {"count", "replace", "removeprefix", "removesuffix", "search", "match", "fullmatch"}
    | {"findall", "finditer", "sub"}
)


FOREIGN_ERRORS = {
    "jupyter_mntrain/agent/failure/own_errors.py",
    "jupyter_mntrain/cluster/agents/transport.py",
    "jupyter_mntrain/workload/workload.py",
}
"""Where errors of other libraries are searched, which have nothing but words."""


def is_sentence(node: ast.AST) -> bool:
    """Whether it is a cause, a fix, or a whole problem or error in words."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "str" and node.args:
        return getattr(node.args[0], "attr", getattr(node.args[0], "id", "")) in SPOKEN
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


def searched_in(node: ast.AST) -> list[ast.expr]:
    """What a comparison with words or a search looks into."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        is_within = any(isinstance(one, ast.In | ast.NotIn) for one in node.ops)
        has_words = any(isinstance(one, ast.Constant) and one.value for one in sides)
        return sides if is_within or has_words else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        return [node.func.value, *node.args] if node.func.attr in SEARCHES else []
    return []


MAY_NAME_ONE = re.compile(rf"\.({'|'.join(SENTENCES)})\b|\bstr\([^()]*({'|'.join(SPOKEN)})")
"""Parsing every module takes seconds, and four of five have no such word."""


def searches_in(code: str) -> Iterator[ast.expr]:
    """The sentences of ours that it searches."""
    if MAY_NAME_ONE.search(code):
        for node in ast.walk(ast.parse(code)):
            yield from (one for one in searched_in(node) if is_sentence(one))


def errors_without_number(code: str) -> list[int]:
    """Lines that make an OSError of a full disk, say, of words alone: nobody can tell its kind."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "OSError"
        and len(node.args) == 1
        and re.search(r"\bfull\b|\bfree\b|permi|read-only|limit", ast.unparse(node.args[0]))
    ]


def test_an_error_of_the_system_carries_its_number() -> None:
    assert errors_without_number('raise OSError("the disk is full")') == [1]
    assert not errors_without_number('raise OSError(errno.ENOSPC, "full", name)')
    found = {
        name(path): lines for path in MODULES if (lines := errors_without_number(path.read_text()))
    }
    assert not found, "give it errno's number, as full_disk of model/failure/system_errors.py"


def runs_foreign_code(source: str) -> list[int]:
    """Lines that read what others wrote with transformers, without forbidding code in it."""
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    return [
        one.lineno
        for one in calls
        if isinstance(one.func, ast.Attribute)
        and one.func.attr in {"from_pretrained", "from_config"}
        and ast.unparse(one.func.value).startswith("Auto")
        and ("trust_remote_code", "False")
        not in {(str(given.arg), ast.unparse(given.value)) for given in one.keywords}
    ]


def test_no_code_of_a_model_is_run() -> None:
    """Left open, transformers asks at a terminal whether to run it."""
    assert runs_foreign_code("AutoConfig.from_pretrained(path, local_files_only=True)") == [1]
    assert runs_foreign_code("AutoModel.from_config(c, trust_remote_code=True)") == [1]
    assert not runs_foreign_code("AutoConfig.from_pretrained(path, trust_remote_code=False)")
    found = {
        name(path): lines for path in MODULES if (lines := runs_foreign_code(path.read_text()))
    }
    assert not found, "add trust_remote_code=False"


def test_no_code_searches_a_sentence_of_ours() -> None:
    found = [
        f"{name(path)}:{one.lineno}: {ast.unparse(one)}"
        for path in MODULES
        if name(path) not in WORDED_BY | FOREIGN_ERRORS
        for one in searches_in(path.read_text())
    ]
    assert not found, "decide by the problem's kind"


def test_the_page_searches_no_sentence_of_ours() -> None:
    words = r"\b(cause|fix|stop_reason)\b[?!]*"
    search = r"\.(startsWith|endsWith|includes|indexOf|match|search|split|replace)\("
    pattern = re.compile(rf"{words}{search}|\.test\([^()]*{words}\)")
    found = [
        name(path)
        for path in tracked("labextension/src/*.ts", "labextension/src/*.tsx")
        if pattern.search(path.read_text())
    ]
    assert not found, "decide by the problem's kind"


@pytest.mark.parametrize(
    "code",
    [
        "'timed out' in error.cause",
        "view.problem.fix == 'try again'",
        "problem.headline.startswith('x')",
        "re.search('x', str(error))",
        "re.match('x', self.problem.cause)",
        "str(one.problem).partition(' Fix: ')",
    ],
)
def test_a_search_of_a_sentence_is_noticed(code: str) -> None:
    assert list(searches_in(code))


def words_a_fix(code: str) -> bool:
    """Outside of docstrings, which nobody is shown."""
    if "Fix:" not in code:
        return False
    nodes = list(ast.walk(ast.parse(code)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    return any(
        "Fix:" in node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if id(node) not in docstrings
    )


def test_a_fix_is_put_into_words_in_one_place_of_each_language() -> None:
    found = {name(path) for path in MODULES if words_a_fix(path.read_text())}
    page = [path for path in tracked("labextension/src") if "__tests__" not in str(path)]
    found |= {name(path) for path in page if "Fix:" in path.read_text()}
    assert found == WORDED_BY
