"""What an agent tells of a script that lies in a folder of its machine."""

from __future__ import annotations

from pathlib import Path

from jupyter_mntrain.agent.machine import facts
from jupyter_mntrain.agent.machine.facts import read_script_there
from jupyter_mntrain.model.records.doctor.machine import AskedScript, FoundScript


def test_the_first_name_that_is_there_is_read_with_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__main__.py").write_text("import helper")
    (tmp_path / "helper.py").touch()
    asked = AskedScript(str(tmp_path), ("mine.py", "mine/__main__.py"))
    found = read_script_there(asked)
    assert (found.name, found.text) == ("mine/__main__.py", "import helper")
    assert found.beside == ("__main__.py", "helper.py", "mine")


def test_of_what_is_no_text_or_too_long_nothing_is_told(tmp_path: Path, monkeypatch) -> None:
    asked = AskedScript(str(tmp_path), ("train.py",))
    assert read_script_there(asked) == FoundScript()
    (tmp_path / "train.py").write_bytes(b"\xff\xfe\xff")
    assert read_script_there(asked) == FoundScript()
    (tmp_path / "train.py").write_text("import torch")
    monkeypatch.setattr(facts, "MOST_BYTES", 4)
    assert read_script_there(asked) == FoundScript()
