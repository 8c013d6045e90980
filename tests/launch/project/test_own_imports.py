"""Own imports: the folder of Hydra's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_mntrain.launch.project.own_imports import config_folder


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ('hydra.main(config_path="conf", config_name="c")', "src/conf"),
        ('hydra.main("../configs", config_name="c", version_base=None)', "configs"),
        ('hydra.main(version_base="1.3", config_path="./conf")', "src/conf"),
        ('hydra.initialize(config_path="conf")', "src/conf"),
        ('hydra.main(config_path="gone")', None),
        ("hydra.main(config_path=None)", None),
        ("hydra.main(config_path=WHERE)", None),
        ('hydra.main(config_path="/etc")', None),
        ('other.main(config_path="conf")', None),
    ],
)
def test_the_folder_of_the_configuration(tmp_path: Path, call: str, found: str | None) -> None:
    for name in ("src/conf", "configs"):
        (tmp_path / name).mkdir(parents=True)
    source = f"import hydra\n@{call}\ndef main(cfg):\n    pass\n"
    place = config_folder(source, tmp_path / "src")
    assert place == (tmp_path / found if found else None)
