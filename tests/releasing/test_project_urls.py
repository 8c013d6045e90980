"""Addresses in the metadata: those of the repository that a package is built from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.releasing.project_urls import origin, web_address

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://example.org/team/project.git", "https://example.org/team/project"),
        ("https://ann:secret@example.org/team/project", "https://example.org/team/project"),
        ("https://example.org:3000/team/project/", "https://example.org:3000/team/project"),
        ("git@example.org:team/project.git", "https://example.org/team/project"),
        (
            "ssh://git@example.org:2222/group/sub/project.git",
            "https://example.org/group/sub/project",
        ),
        ("/srv/git/project.git", ""),
        ("../project.git", ""),
        ("file:///srv/git/project.git", ""),
        ("C:\\projects\\project", ""),
        ("wopr:project", ""),
        ("https://example.org/", ""),
        ("https://example.org:port/team/project", ""),
        ("", ""),
    ],
)
def test_a_remote_repository_has_a_page_if_it_is_on_the_web(remote, address):
    assert web_address(remote) == address


def metadata_of(checkout: Path) -> dict[str, object]:
    told = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(told.stdout)


@pytest.fixture
def checkout(tmp_path):
    """A clone with what the metadata needs."""
    clone = tmp_path / "clone"
    command = ["git", "clone", "--quiet", "--local", "--no-checkout", str(ROOT), str(clone)]
    subprocess.run(command, check=True)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "jupyter_mntrain/__init__.py"):
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_bytes((ROOT / name).read_bytes())
    hook = "scripts/releasing/project_urls.py"
    (clone / hook).parent.mkdir(parents=True)
    (clone / hook).write_bytes((ROOT / hook).read_bytes())
    return clone


def test_a_package_names_the_repository_that_it_is_built_from(checkout):
    remote = ["git", "remote", "set-url", "origin", "git@example.org:team/project.git"]
    subprocess.run(remote, cwd=checkout, check=True)
    assert metadata_of(checkout)["urls"] == {
        "Source": "https://example.org/team/project",
        "Documentation": "https://example.org/team/project/tree/HEAD/docs",
        "Changelog": "https://example.org/team/project/blob/HEAD/CHANGELOG.md",
        "Issues": "https://example.org/team/project/issues",
    }


def test_what_is_unpacked_within_another_checkout_has_no_addresses(checkout):
    remote = ["git", "remote", "set-url", "origin", "git@example.org:team/other.git"]
    subprocess.run(remote, cwd=checkout, check=True)
    assert origin(checkout)
    assert origin(checkout / "jupyter_mntrain") == ""


def test_a_package_of_a_local_clone_has_no_addresses(checkout):
    assert "urls" not in metadata_of(checkout)
    subprocess.run(["git", "remote", "remove", "origin"], cwd=checkout, check=True)
    assert "urls" not in metadata_of(checkout)
