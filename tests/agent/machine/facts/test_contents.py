"""Contents of models and data sets, and modules that an interpreter finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import jupyter_mntrain
from jupyter_mntrain.agent.machine import facts
from jupyter_mntrain.agent.machine.facts import contents, find_path
from jupyter_mntrain.agent.machine.software.loaded import ModuleSearch, lacking_modules
from jupyter_mntrain.doctor.script.needs import read_script
from jupyter_mntrain.launch.files.large_places import told_roots
from jupyter_mntrain.model.records.doctor.machine import AskedPath


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "llama" / "sub").mkdir(parents=True)
    (tmp_path / "llama" / "config.json").write_text("{}")
    (tmp_path / "llama" / "sub" / "weights").write_bytes(bytes(100))
    return tmp_path / "llama"


def test_small_files_are_told_by_content_and_large_ones_by_size(
    model: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(facts, "HASHED_BYTES", 50)
    before = contents(model)
    assert before["sub/weights"] == "100"
    (model / "config.json").write_text("[]")
    after = contents(model)
    assert after["config.json"] != before["config.json"]
    assert after["config.json"].startswith("2 ")


def test_what_a_program_notes_in_hidden_files_is_not_told(model: Path):
    before = contents(model)
    (model / ".cache" / "huggingface").mkdir(parents=True)
    (model / ".cache" / "huggingface" / "model.metadata").write_text("1763900000")
    (model / ".gitattributes").write_text("*.bin filter=lfs")
    assert contents(model) == before


def test_so_much_is_read_and_no_more(model: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(facts, "HASHED_IN_ALL_BYTES", 50)
    (model / "sub" / "weights").write_bytes(bytes(49))
    found = contents(model)
    assert found["config.json"].startswith("2 ")
    assert found["sub/weights"] == "49"


def test_one_file_is_told_by_its_name(model: Path):
    assert list(contents(model / "config.json")) == ["config.json"]


def test_many_files_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(facts, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}").touch()
    assert list(contents(tmp_path)) == ["0", "1", "2"]


def test_a_large_thing_is_found_by_its_name(model: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in told_roots({"models": model.parent}).items():
        monkeypatch.setenv(name, value)
    found = find_path(AskedPath(use="model", path="models:llama"), {})
    assert (found.path, found.asked, found.kind) == (str(model), "models:llama", "folder")
    assert set(found.files) == {"config.json", "sub/weights"}
    lost = find_path(AskedPath(use="model", path="scratch:llama"), {})
    assert lost.kind == "unreadable"
    assert lost.trouble is not None
    assert "scratch" in lost.trouble.cause


def test_what_is_only_written_to_is_not_read(model: Path):
    assert find_path(AskedPath(use="output", path=str(model)), {}).files == {}


def test_modules_that_are_not_found_are_told():
    names = ("json", "msgspec", "no_such_module", "os; import this", "torch.nn")
    assert lacking_modules(sys.executable, names, {}) == ("no_such_module",)
    assert lacking_modules("/bin/false", names, {}) is None


WITH_NAMES = """
from .inner import old
from .maker import alias
def made(): ...
alias(__name__ + ".moved", Thing=1)
"""


@pytest.mark.parametrize(
    ("name", "is_lacking"),
    [
        ("mine:made", False),
        ("mine:old", False),
        ("mine:inner", False),
        ("mine:compiled", False),
        ("mine:new", True),
        ("mine.inner:old", False),
        ("mine.inner:new", True),
        ("mine.later:anything", False),
        ("mine.gone:anything", True),
        ("mine.moved:Thing", False),
        ("mine.moved:Gone", True),
        ("mine.inner.gone:anything", True),
        ("mine.compiled:anything", False),
        ("no_such_module:anything", False),
        ("json:loads", False),
        ("json:lods", True),
        ("json:tool", False),
        ("os.path:join", False),
        ("time:sleep", False),
    ],
)
def test_names_that_a_module_lacks_are_told(name: str, is_lacking: bool, tmp_path: Path):
    """The module itself is told by its own name."""
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text(WITH_NAMES)
    # Which modules that makes, no text tells.
    (package / "inner.py").write_text("old = 1")
    (package / "maker.py").write_text(
        "import sys, types\nprint('imported')\ndef alias(name, **names):\n"
        "    made = sys.modules[name] = types.ModuleType(name)\n    vars(made).update(names)\n"
    )
    (package / "later.py").write_text("def __getattr__(name): return 1")
    (package / "compiled.cpython-311-x86_64-linux-gnu.so").touch()
    found = lacking_modules(sys.executable, (name,), {"PYTHONPATH": str(tmp_path)})
    assert found == ((name,) if is_lacking else ())


def test_what_the_trainer_imports_is_not_lacking():
    """Of torch, transformers and others, whose packages make names in many ways."""
    package = Path(jupyter_mntrain.__file__).parent
    texts = [one.read_text() for one in package.glob("train/**/*.py")]
    names = {need.what for text in texts for need in read_script(text).names}
    foreign = tuple(sorted(one for one in names if not one.startswith("jupyter_mntrain")))
    assert len(foreign) > 50
    assert lacking_modules(sys.executable, foreign, {}) == ()


def test_only_modules_that_were_found_are_not_looked_for_again(tmp_path: Path):
    now_s = 0.0
    search, loaders = ModuleSearch(lambda: now_s), {"PYTHONPATH": str(tmp_path)}
    mine = tmp_path / "mine.py"
    assert search.lacking(sys.executable, ("json", "mine"), loaders) == ("mine",)
    mine.write_text("")
    assert search.lacking(sys.executable, ("json", "mine"), loaders) == ()
    mine.unlink()
    assert search.lacking(sys.executable, ("mine",), loaders) == ()
    assert search.lacking(sys.executable, ("mine",), {}) == ("mine",)
    now_s = 60.0
    assert search.lacking(sys.executable, ("mine",), loaders) == ("mine",)
