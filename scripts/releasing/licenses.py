"""Licenses: of every dependency, by its own metadata, and which of them are accepted.

No dependency is part of the wheel, so copyleft that ends at a library's own files (LGPL, MPL) is
accepted. What the extension's bundle includes is part of it: see ``bundle.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import boolean
from license_expression import get_spdx_licensing

from scripts.releasing.refusal import Refusal

PERMISSIVE: Final = frozenset(
    {"0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause"}
    | {"BSL-1.0", "CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0"}
    | {"Python-2.0", "Unlicense", "Zlib"}
)
OF_LIBRARIES: Final = frozenset({"LGPL-2.1-or-later", "LGPL-3.0-or-later", "MPL-2.0"})
CLASSIFIERS: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What the classifiers ``License :: OSI Approved :: …`` of older packages mean."""
BY_HAND: Final = {
    "torchao": "BSD-3-Clause",
    **dict.fromkeys(("asttokens", "bleach", "overrides", "transformers"), "Apache-2.0"),
}
"""Of packages whose metadata names none, or in their own words: read in their files."""


def license_of(component: Mapping[str, Any]) -> str | None:
    """The SPDX expression of a component of a bill of materials; ``None`` if it tells none."""
    if (known := BY_HAND.get(component["name"])) is not None:
        return known
    found = [one.get("license", {}) for one in component.get("licenses", ())]
    told = [one["expression"] for one in component.get("licenses", ()) if "expression" in one]
    told += [one["id"] for one in found if "id" in one]
    if not told:
        names = [str(one.get("name", "")).rpartition(" :: ")[2] for one in found]
        told = [CLASSIFIERS[name] for name in names if name in CLASSIFIERS]
    return " AND ".join(sorted({f"({one})" if " OR " in one else one for one in told})) or None


def is_accepted(expression: str, accepted: frozenset[str] = PERMISSIVE | OF_LIBRARIES) -> bool:
    """Whether an SPDX expression can be met with accepted licenses alone."""
    licensing = get_spdx_licensing()
    parsed = licensing.parse(expression, validate=True)

    def meets(part: Any) -> bool:
        if isinstance(part, boolean.AND):
            return all(meets(one) for one in part.args)
        if isinstance(part, boolean.OR):
            return any(meets(one) for one in part.args)
        return part.render() in accepted

    return meets(parsed)


def check_licenses(components: list[Mapping[str, Any]]) -> dict[str, str]:
    """The license of each component, by name and version.

    Raises:
        Refusal: one is unknown or not accepted.
    """
    found = {f"{one['name']} {one['version']}": license_of(one) for one in components}
    unknown = [name for name, told in found.items() if told is None]
    known = {name: told for name, told in found.items() if told is not None}
    refused = [f"{name} ({told})" for name, told in known.items() if not is_accepted(told)]
    if unknown or refused:
        raise Refusal(
            f"licenses that are unknown: {', '.join(unknown) or 'none'}; that are not accepted: "
            f"{', '.join(refused) or 'none'}. Fix: replace the package, or read its license and "
            "extend scripts/releasing/licenses.py"
        )
    return known
