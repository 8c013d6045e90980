"""Releasing: each check refuses what it is there for."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from scripts.releasing.__main__ import check_named
from scripts.releasing.bill import PACKAGE, bundled, check_bill, needed, released
from scripts.releasing.builds import check_same
from scripts.releasing.bundle import check_hosts, check_notice, hosts
from scripts.releasing.licenses import check_licenses, is_accepted, license_of
from scripts.releasing.pins import HASHED, check_pins, pins, without_torch
from scripts.releasing.refusal import Refusal

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "jupyter_mntrain/labextension/static"


def component(name: str, *licenses: dict[str, object]) -> dict[str, object]:
    return {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": "1",
        "licenses": list(licenses),
    }


def named(name: str) -> dict[str, object]:
    return {"license": {"name": f"License :: OSI Approved :: {name}"}}


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("MIT", True),
        ("MPL-2.0 AND MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("MIT AND GPL-3.0-only", False),
        ("Apache-2.0 WITH LLVM-exception", True),
    ],
)
def test_an_expression_is_accepted_if_accepted_licenses_meet_it(expression, accepted):
    assert is_accepted(expression) == accepted


def test_a_license_is_an_expression_an_id_or_a_classifier():
    assert license_of(component("a", {"expression": "MIT OR Apache-2.0"})) == "(MIT OR Apache-2.0)"
    assert license_of(component("a", {"license": {"id": "ISC"}}, named("MIT License"))) == "ISC"
    assert license_of(component("a", named("BSD License"))) == "BSD-3-Clause"
    assert license_of(component("a", {"license": {"name": "declared license of 'a'"}})) is None


def test_licenses_that_are_unknown_or_not_accepted_are_refused_by_name():
    bad = [component("fine", {"license": {"id": "MIT"}}), component("vague")]
    bad.append(component("viral", {"license": {"id": "GPL-3.0-only"}}))
    with pytest.raises(Refusal, match=r"vague 1.*viral 1 \(GPL-3\.0-only\)") as refused:
        check_licenses(bad)
    assert "fine" not in str(refused.value)


def test_what_is_needed_is_what_installs_without_extras():
    found = needed()
    assert {"torch", "tornado", "zeroconf"} <= found[PACKAGE]
    assert {"anyio", "httpcore"} <= found.keys()
    assert found.keys().isdisjoint({"pytest", "lightkube", "mypy", "cyclonedx-bom", "wandb"})


def test_the_bill_has_what_is_needed_and_what_the_bundle_includes():
    names = needed().keys() - {PACKAGE}
    installed = [component(one, {"license": {"id": "MIT"}}) for one in [*names, "pytest"]]
    root = {"type": "library", "bom-ref": "root", "name": PACKAGE}
    whole = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {"component": root},
        "components": installed,
    }
    inside = bundled(STATIC / "third-party-licenses.json", {"@rspack/core": "2.0.0"})
    bill = released(whole, "9.9.9", inside)
    check_bill(bill)
    assert bill["metadata"]["component"]["version"] == "9.9.9"
    assert {one["name"] for one in bill["components"]} == names | {one["name"] for one in inside}
    (own,) = [one["dependsOn"] for one in bill["dependencies"] if one["ref"] == "root"]
    assert {"torch", "npm:@rspack/core@2.0.0"} <= set(own)
    assert {one["ref"] for one in bill["dependencies"]} == {
        "root",
        *(one["bom-ref"] for one in bill["components"]),
    }
    with pytest.raises(Refusal, match="not valid"):
        check_bill({**bill, "components": [{"name": "without a type"}]})


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('fetch("https://fonts.example.org/a")', {"fonts.example.org"}),
        ("import('//cdn.example.org/x.js')", {"cdn.example.org"}),
        ("@import url(//cdn.example.org/x.css)", {"cdn.example.org"}),
        ('new WebSocket("wss://example.org")', {"example.org"}),
        ('document.createElementNS("http://www.w3.org/2000/svg")', {"www.w3.org"}),
        ("a = b //not.a.host", set()),
    ],
)
def test_hosts_in_files_are_found(tmp_path, code, found):
    (tmp_path / "page.js").write_text(code)
    assert hosts(tmp_path).keys() == found
    if found - {"www.w3.org"}:
        with pytest.raises(Refusal, match=r"page\.js"):
            check_hosts(tmp_path)
    else:
        check_hosts(tmp_path)


def test_the_extension_names_no_foreign_host():
    assert len(list(STATIC.glob("*.js"))) > 2
    check_hosts(STATIC.parent)


def test_notice_has_the_licenses_of_the_bundle():
    notice, listed = (ROOT / "NOTICE").read_text(), STATIC / "third-party-licenses.json"
    check_notice(notice, listed)
    with pytest.raises(Refusal, match="uplot"):
        check_notice(notice.replace("Leon Sorokin", "Somebody"), listed)


def wheel(folder: Path, content: str) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "a-1-py3-none-any.whl", "w") as made:
        made.writestr(zipfile.ZipInfo("a/b.py"), content)
    return folder


def test_builds_that_differ_are_refused_with_the_file(tmp_path):
    first, second = wheel(tmp_path / "1", "x"), wheel(tmp_path / "2", "x")
    assert list(check_same(first, second)) == ["a-1-py3-none-any.whl"]
    with pytest.raises(Refusal, match=r"a/b\.py"):
        check_same(first, wheel(tmp_path / "3", "y"))
    (second / "a-1.tar.gz").touch()
    with pytest.raises(Refusal, match="once only"):
        check_same(first, second)


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def test_a_release_needs_its_tag_a_date_and_no_changes(tmp_path):
    git(tmp_path, "init")
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.0]\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    with pytest.raises(Refusal, match=r"not tagged v1\.2\.0"):
        check_named("1.2.0", tmp_path)
    git(tmp_path, "tag", "v1.2.0")
    with pytest.raises(Refusal, match="no date"):
        check_named("1.2.0", tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("## [1.2.0] - 2026-12-01\n")
    with pytest.raises(Refusal, match="not committed"):
        check_named("1.2.0", tmp_path)
    git(tmp_path, "commit", "-am", "dated")
    git(tmp_path, "tag", "--force", "v1.2.0")
    check_named("1.2.0", tmp_path)


def test_what_users_get_is_pinned_with_hashes_as_it_is_tested():
    check_pins(
        HASHED.read_text(), (ROOT / "constraints.txt").read_text(), needed().keys() - {PACKAGE}
    )
    hashed = HASHED.read_text()
    assert all("--hash=sha256:" in one for one in hashed.split("\n") if "==" not in one and one)
    assert "torch" not in pins(hashed)


def test_a_pin_that_is_older_than_its_test_is_refused():
    hashed = "a==1 \\\n    --hash=sha256:00\nb==2 \\\n    --hash=sha256:11\n"
    check_pins(hashed, "a==1\nb==2\nc==3\n", ["a", "B", "torch"])
    with pytest.raises(Refusal, match="for b"):
        check_pins(hashed, "a==1\nb==3\n", ["a", "b"])
    with pytest.raises(Refusal, match="for c"):
        check_pins(hashed, "a==1\nb==2\nc==3\n", ["a", "b", "c"])


def test_pins_leave_out_what_differs_by_the_build_of_torch():
    others = "nvidia-ml-py==13 \\\n    --hash=sha256:00\ntorchao==1 \\\n    --hash=sha256:11\n"
    builds = ("torch", "triton", "cuda-bindings", "nvidia-cublas", "nvidia-nccl-cu13", "setuptools")
    brought = "".join(f"{one}==1 \\\n    --hash=sha256:22\n" for one in builds)
    assert without_torch(brought + others) == others
