"""Roles: which certificate may send which request to an agent."""

from __future__ import annotations

from jupyter_mntrain.agent.http import MAY
from scripts.website.reference.tables import code, table


def page() -> str:
    rows = [
        (
            code(f"{method} {route}"),
            "✓" if "driver" in roles else "–",
            "✓" if "node" in roles else "–",
            "masked" if "viewer" in roles else "–",
        )
        for (route, method), roles in MAY.items()
    ]
    return "\n".join(
        [
            "# Requests and roles",
            "",
            (
                "What a certificate may ask an agent for. A node may do so only for jobs that a "
                "driver has placed on both nodes. Of what is *masked*, no text shows a secret of "
                "the job: `tests/agent/access/test_viewing.py` plants one in every text of every "
                "record, and asks every one of these routes in every role. What is not in this "
                "table is refused to all. [Security](../security.md) says why."
            ),
            "",
            *table(("request", "driver", "node", "read-only driver"), rows),
        ]
    )
