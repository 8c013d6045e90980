"""Files of the repository: license, policies, and checks before a commit."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import longest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
APACHE_2_SHA256 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""Of the text that the Apache Software Foundation publishes as LICENSE-2.0.txt."""

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
)
LINK = re.compile(r"\]\((?!https?://|#|attachment:)([^)#\s]+)(?:#[^)]*)?\)")


def hooks() -> list[dict[str, object]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    return [hook for repo in config["repos"] for hook in repo["hooks"]]


def test_the_license_is_the_full_apache_text_and_is_declared():
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE"]
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_SHA256


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("README.md", "# jupyter_mntrain"),
        ("CHANGELOG.md", "## [Unreleased]"),
        ("CONTRIBUTING.md", "# Contributing"),
        ("SECURITY.md", "## Reporting a vulnerability"),
        ("docs/glossary.md", "# Glossary"),
    ],
)
def test_the_page_exists_with_its_heading(page, heading):
    assert heading in (ROOT / page).read_text().splitlines()


def test_the_readme_leads_to_the_policies():
    links = LINK.findall((ROOT / "README.md").read_text())
    assert {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "SECURITY.md"} <= set(links)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_local_link_of_a_page_leads_somewhere(page):
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_hooks_run_the_checks_of_the_fast_layer_with_tools_of_the_environment():
    commands = [shlex.split(str(hook["entry"])) for hook in hooks()]
    assert {Path(command[0]).name for command in commands} == {"ruff", "mypy", "lint-imports"}
    tools = Path(sys.executable).parent
    for command in commands:
        assert Path(command[0]).parent == Path(".venv/bin")
        assert shutil.which(Path(command[0]).name, path=tools), f"{command[0]} is not installed"


def test_every_file_that_is_begun_first_exists():
    assert [file for file in longest.FILES if not (ROOT / file).is_file()] == []
    assert len({*longest.FILES}) == len(longest.FILES)


def test_hooks_need_no_network():
    assert {hook["language"] for hook in hooks()} == {"system"}


def test_every_file_that_the_architecture_names_exists():
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) > 40
    tops = (ROOT, ROOT / "jupyter_mntrain")
    assert [name for name in named if not any((top / name).exists() for top in tops)] == []
