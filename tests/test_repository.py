"""Files of the repository: license, policies, and checks before a commit."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import jupyter_mntrain
from scripts import run_tests
from tests import longest
from tests.rows import has_rows_for, same_rows

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLASSIFIERS = PROJECT["classifiers"]
REQUIRED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
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
    assert PROJECT["license-files"] == ["LICENSE", "NOTICE"]
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2_SHA256


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        ("README.md", "# jupyter_mntrain"),
        ("CODE_OF_CONDUCT.md", "# Code of conduct"),
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
    policies = {
        "CHANGELOG.md",
        "CITATION.cff",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    }
    assert {*policies, "LICENSE", "NOTICE"} <= set(links)


def test_the_first_screen_of_the_readme_has_a_picture_and_two_commands():
    screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert len(re.findall(r"^!\[.+\]\(docs/images/.+\)$", screen, re.MULTILINE)) == 1
    (commands,) = re.findall(r"^```\n(.*?)^```$", screen, re.MULTILINE | re.DOTALL)
    scripts = [line.split()[0] for line in commands.splitlines()]
    assert scripts == ["scripts/demo", "scripts/test"]
    assert all(os.access(ROOT / script, os.X_OK) for script in scripts)


def test_ci_runs_the_test_command_of_the_readme():
    assert (ROOT / ".ci/run").read_text().splitlines()[
        -1
    ] == 'exec "$(dirname "$0")/../scripts/test"'


FROM_AN_INDEX = re.compile(
    r"pip (?:install|download)\b(?!.*--no-index)[^\n`&]*"
    r"\bjupyter[-_]mntrain(?!\[|-\*\.whl|-[\w.{}-]+\.whl)"
)
"""Such a command fails for everybody until there is a release. With an extra it is for those who
have the package already: pip takes that one."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_guide_installs_what_can_be_had(page):
    released = re.search(r"^## \[[\d.]+\] - \d", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    if not released:
        assert FROM_AN_INDEX.findall(page.read_text()) == [], (
            "Fix: the wheel, as installing.md says"
        )


def test_what_people_are_told_to_install_can_be_had():
    sources = [
        *(ROOT / "jupyter_mntrain").rglob("*.py"),
        *(ROOT / "labextension/src").rglob("*.ts*"),
    ]
    told = {str(path): FROM_AN_INDEX.findall(path.read_text()) for path in sources}
    assert {path: found for path, found in told.items() if found} == {}


def test_the_search_for_such_commands_finds_them():
    assert FROM_AN_INDEX.search("`pip install jupyter-mntrain`")
    assert FROM_AN_INDEX.search("pip install --upgrade jupyter_mntrain==1")
    assert FROM_AN_INDEX.search("pip install jupyterlab jupyter-mntrain torch")
    assert not FROM_AN_INDEX.search("pip install 'jupyter-mntrain[serve]'")
    assert not FROM_AN_INDEX.search("pip install --no-deps jupyter_mntrain-*.whl")
    assert not FROM_AN_INDEX.search("pip install --no-index --find-links wheels jupyter-mntrain")


def test_the_index_of_the_documentation_leads_to_every_page():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    linked = LINK.findall((ROOT / "docs" / "README.md").read_text())
    has_rows_for(pages, linked, "docs/{} is in no menu: link it in its section of docs/README.md")


def test_the_citation_and_the_extension_are_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    page = json.loads((ROOT / "labextension" / "package.json").read_text())
    assert cited["version"] == page["version"] == jupyter_mntrain.__version__
    assert cited["license"] == PROJECT["license"]
    assert cited["keywords"] == PROJECT["keywords"]
    assert cited["authors"] == PROJECT["authors"]


def test_the_changelog_knows_this_version_or_has_it_ahead():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert jupyter_mntrain.__version__ in versions


def test_classifiers_name_what_the_workflow_tests():
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    tested = check["jobs"]["fast"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    same_rows(
        tested,
        named,
        "Python {} is tested, and no classifier names it: add it to pyproject.toml",
        "a classifier names Python {}, which the job 'fast' of .github/workflows/check.yml does not"
        " test: add it to its matrix",
    )
    assert PROJECT["requires-python"] == f">={tested[0]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_local_link_of_a_page_leads_somewhere(page):
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert broken == []


def test_hooks_run_the_checks_of_the_fast_layer_with_tools_of_the_environment():
    tools = {re.search(r"\.venv/bin/(\S+)", str(hook["entry"]))[1] for hook in hooks()}
    assert tools == {"ruff", "mypy", "lint-imports", "codespell", "jlpm", "jupyter-nbconvert"}
    here = Path(sys.executable).parent
    assert {tool for tool in tools if not shutil.which(tool, path=here)} == set(), "not installed"


def test_every_file_that_is_begun_first_exists():
    gone = [file for file in longest.FILES if not (ROOT / file).is_file()]
    assert gone == [], "take them from FILES in tests/longest.py, or name what they became"
    assert len({*longest.FILES}) == len(longest.FILES)


def test_hooks_need_no_network():
    assert {hook["language"] for hook in hooks()} == {"system"}


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, object]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_nothing_but_the_scripts_that_are_run_here(workflow):
    for step in steps(workflow):
        if "run" not in step:
            continue
        command = str(step["run"]).removeprefix('sudo env "PATH=$PATH" ')
        script, *arguments = shlex.split(command)
        assert script.startswith("scripts/")
        assert os.access(ROOT / script, os.X_OK)
        assert not set(command) & set(";&|`\n"), "one script, no shell of its own"
        assert "${{" not in command, "what others can name is no part of a command"
        assert set(arguments) <= {"fast", "$LAYER", "$FORM", "--dry-run", "cpu"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_do_little_and_names_no_host(workflow):
    text = workflow.read_text()
    assert not re.search(r"://|\.(org|com|io|net)\b", text)
    assert "secrets." not in text
    top = yaml.safe_load(text)
    assert top["permissions"] in ({}, {"contents": "read"})
    writes = {job for job, what in top["jobs"].items() if "write" in str(what.get("permissions"))}
    assert writes == ({"publish"} if workflow.name == "release.yml" else set())


def test_every_layer_of_tests_has_a_job():
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    named = [job.get("env", {}).get("LAYER") for job in check["jobs"].values()]
    same_rows(
        run_tests.LAYERS,
        {*filter(None, named), "fast"},
        "layer '{}' of scripts/test runs in no job: add one with LAYER to"
        " .github/workflows/check.yml",
        ".github/workflows/check.yml runs layer '{}', which scripts/test has not",
    )


def test_every_long_form_has_a_job_of_the_week():
    weekly = yaml.safe_load((ROOT / ".github/workflows/weekly.yml").read_text())
    job = weekly["jobs"]["long"]
    same_rows(
        run_tests.LONG,
        job["strategy"]["matrix"]["form"],
        "long form '{}' of scripts/test runs in no job: add it to .github/workflows/weekly.yml",
        ".github/workflows/weekly.yml runs '{}', which scripts/test has not",
    )


def test_versions_are_tried_from_the_oldest_that_is_allowed() -> None:
    check = yaml.safe_load((ROOT / ".github/workflows/check.yml").read_text())
    rows = check["jobs"]["compatibility"]["strategy"]["matrix"]["include"]
    assert {row["python"] for row in rows} == {*re.findall(r"3\.1\d", " ".join(CLASSIFIERS))}
    oldest = dict(re.findall(r"(\w+)==([\d.]+)\.\*", rows[0]["requirements"]))
    required = dict(re.findall(r"^(\w+)>=([\d.]+)(?:,.*)?$", "\n".join(REQUIRED), re.MULTILINE))
    assert oldest == {name: required[name] for name in oldest}
    assert {row["requirements"] for row in rows} >= {""}, "and the newest of all"


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_an_issue_form_asks_for_something(form):
    """As GitHub reads forms: a name, a description, and fields whose ids are unique."""
    asked = yaml.safe_load(form.read_text())
    assert asked["name"]
    assert asked["description"]
    fields = [field for field in asked["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize(
    ("page", "at_least"), [("docs/architecture.md", 40), ("CONTRIBUTING.md", 30)]
)
def test_every_file_that_the_page_names_exists(page, at_least):
    named = re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|md))`", (ROOT / page).read_text())
    named = [name for name in named if not re.search(r"\b(ROOM|NAME)\b", name)]
    assert len(named) > at_least
    tops = (ROOT, ROOT / "jupyter_mntrain")
    assert [name for name in named if not any((top / name).exists() for top in tops)] == []


RELEASE = re.compile(
    r"pip install (-\S+ )*[\"']?jupyter[-_]mntrain(\[[\w,]*\])?[\"']?\s*$", re.MULTILINE
)
"""An install of a release from an index, which has none yet."""


def test_no_guide_begins_with_a_release_that_there_is_not() -> None:
    assert RELEASE.search("pip install jupyter-mntrain\n")
    assert RELEASE.search('  RUN pip install -U "jupyter_mntrain[serve]"')
    assert not RELEASE.search("pip install jupyter_mntrain-*.whl")
    bad = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL)
        commands = [
            line for block in blocks for line in block.splitlines() if "pip install" in line
        ]
        if commands and RELEASE.search(commands[0]):
            bad.append(f"{path.name}: {commands[0].strip()}")
    assert not bad, (
        "name the wheel that scripts/wheel builds: docs/installing.md, Getting the package"
    )


@pytest.mark.parametrize(("command", "code"), [("echo fine", 0), ("echo no room; exit 3", 3)])
def test_a_step_of_an_installation_says_what_it_does_and_why_it_failed(
    tmp_path: Path, command: str, code: int
) -> None:
    """A minute without a word looked like one that hangs."""
    log = tmp_path / "install.log"
    script = f'. scripts/steps.sh; step "installing" "1 min" {log} bash -c {shlex.quote(command)}'
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stdout == f"installing (usually 1 min; log: {log})\n"
    assert done.stderr == (f"no room\ninstalling failed; all of it: {log}\n" if code else "")
