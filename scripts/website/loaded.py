"""What pages load: nothing from elsewhere, so that the site also works without internet."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.releasing.refusal import Refusal

_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|link(?=[^>]*rel="(?:stylesheet|preload|icon)"))\b[^>]*?"""
    r"""\s(?:src|href)="(?:https?:)?//([^"/]+)"""
)


def check_loaded(site: Path) -> None:
    """Refuse a page that a browser completes with something from another host.

    Raises:
        Refusal: it names the page and the host.
    """
    for page in sorted(site.rglob("*.html")):
        if host := _LOADED.search(page.read_text()):
            raise Refusal(
                f"{page.relative_to(site)} loads from {host[1]}. Fix: put it into docs/images, or "
                "turn off in scripts/website/conf.py what asks for it"
            )
