"""Bill of materials: what a user gets with the wheel, as CycloneDX.

``cyclonedx-py`` describes the whole environment; what only tests and extras need is left out here,
and what the extension's bundle includes is added.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.releasing.refusal import Refusal

PACKAGE = "jupyter-mntrain"

OF_A_BUILD: Final = re.compile(r"triton|cuda-.+|nvidia-(?!ml-py$).+")
"""Packages that a build of torch for GPUs brings. Which build is right depends on a machine's
driver, and a release is the same whichever is installed where it is made."""


def needed(package: str = PACKAGE) -> dict[str, set[str]]:
    """Each package that an installation without extras has, and what it requires itself.

    Less what a build of torch brings.
    """
    found: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    todo = [(package, frozenset[str]())]
    while todo:
        name, extras = todo.pop()
        if name in found and extras <= asked[name]:
            continue
        asked[name] = asked.get(name, set()) | extras
        wanted = [
            one
            for one in map(Requirement, distribution(name).requires or ())
            if one.marker is None
            or any(one.marker.evaluate({"extra": extra}) for extra in asked[name] | {""})
        ]
        named = [(canonicalize_name(one.name), frozenset(one.extras)) for one in wanted]
        named = [one for one in named if not OF_A_BUILD.fullmatch(one[0])]
        found[name] = {other for other, _ in named}
        todo += named
    return found


def environment(root: Path) -> dict[str, Any]:
    """The bill of everything that is installed here. Without a time: the same each time."""
    command = ["cyclonedx-py", "environment", "--pyproject", str(root / "pyproject.toml")]
    command += ["--mc-type", "library", "--output-reproducible", "--no-validate", sys.executable]
    command[0] = str(Path(sys.executable).with_name(command[0]))
    bill: dict[str, Any] = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return bill


def bundled(third_party: Path, built_with: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the extension's bundle includes: what its build lists, and the bundler's own loader."""
    listed = json.loads(third_party.read_text())["packages"]
    packages = {one["name"]: (one["versionInfo"], one["licenseId"]) for one in listed}
    packages |= {name: (version, "MIT") for name, version in built_with.items()}
    return [
        {
            "type": "library",
            "bom-ref": f"npm:{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{version}",
            "licenses": [{"license": {"id": known}}],
        }
        for name, (version, known) in sorted(packages.items())
    ]


def released(
    bill: Mapping[str, Any], version: str, extras: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """The part of a bill that users get, with what the bundle includes."""
    inside, needs = list(extras), needed()
    known: dict[str, Any] = {canonicalize_name(one["name"]): one for one in bill["components"]}
    components = [known[name] for name in sorted(needs.keys() - {PACKAGE})]
    root = {**bill["metadata"]["component"], "version": version}
    own = {one["bom-ref"] for one in inside}
    refs = {name: known[name]["bom-ref"] for name in needs.keys() - {PACKAGE}}
    edges = {refs.get(name, root["bom-ref"]): {refs[one] for one in needs[name]} for name in needs}
    edges[root["bom-ref"]] |= own
    return {
        **bill,
        "metadata": {**bill["metadata"], "component": root},
        "components": components + inside,
        "dependencies": [
            {"ref": ref, **({"dependsOn": sorted(on)} if on else {})}
            for ref, on in sorted({**{ref: set() for ref in own}, **edges}.items())
        ],
    }


def check_bill(bill: Mapping[str, Any]) -> None:
    """Refuse one that is not valid CycloneDX."""
    schema = SchemaVersion.from_version(bill["specVersion"])
    if (error := JsonStrictValidator(schema).validate_str(json.dumps(bill))) is not None:
        raise Refusal(
            f"the bill of materials is not valid: {error}. Fix: scripts/releasing/bill.py"
        )
