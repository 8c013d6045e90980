"""Check of what a script loads from the Hugging Face hub, which each node has or fetches itself."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding
from jupyter_mntrain.doctor.node import LEAST_BYTES
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.records.doctor.machine import FoundInHub
from jupyter_mntrain.model.text.foreign import shown_line


class HubFiles(Check):
    id = "hub-files"
    title = "Hugging Face"
    looks_at = (
        "of a script: the models and data sets of the Hugging Face hub that it names, in the "
        "node's cache; whether jobs may fetch them, and room for that. Nothing is asked of the hub"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        for node in case.nodes:
            asked = node.facts.hub if node.facts else ()
            lost = [one for one in asked if not one.is_there]
            if asked and not lost:
                yield self.passed(node, "there")
            for one in lost:
                yield self._judged(node, one, self._holder(case, one))

    def _holder(self, case: Case, like: FoundInHub) -> tuple[CheckedNode, FoundInHub] | None:
        found = ((node, one) for node in case.nodes if node.facts for one in node.facts.hub)
        same = ((node, one) for node, one in found if (one.use, one.name) == (like.use, like.name))
        return next(((node, one) for node, one in same if one.is_there), None)

    def _judged(
        self, node: CheckedNode, lost: FoundInHub, has: tuple[CheckedNode, FoundInHub] | None
    ) -> Finding:
        name, flag = shown_line(lost.name), " --repo-type dataset" * (lost.use == "data")
        folder = shown_line(lost.folder)
        fetch = f"on {node.name}: hf download {name}{flag}"
        copy = fetch
        if has is not None:
            copy = f"on {has[0].name}: rsync -a {shown_line(has[1].folder)}/ {node.name}:{folder}/"
        if lost.is_offline:
            return self.stops(
                node,
                name,
                Kind.NO_FILE,
                cause=f"{name} is not in {folder}, and {lost.is_offline} keeps jobs from "
                "fetching it",
                fix=copy if has else f"unset {lost.is_offline}, or, {fetch}",
            )
        if lost.free_bytes is not None and lost.free_bytes < LEAST_BYTES:
            return self.stops(
                node,
                name,
                Kind.DISK_FULL,
                cause=f"{name} has to be fetched, and {rough_size(lost.free_bytes)} are free for "
                f"{folder}",
                fix=f"free some space there, or set HF_HOME to a larger disk on {node.name}",
            )
        if has is None:
            token = "" if lost.has_token else ", without a token"
            return self.passed(node, f"fetches {name}{token}")
        return self.slows(
            node,
            name,
            Kind.NO_FILE,
            cause=f"{name} has to be fetched first, and is on {has[0].name}",
            fix=copy,
        )
