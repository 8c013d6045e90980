"""Checks that a job's imports work, and that what it reads is the same on all nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import msgspec

from jupyter_mntrain.doctor.check import Case, Check, CheckedNode, Finding, NodeCheck, Unsent
from jupyter_mntrain.launch.files.data_files import DATA_FILES, data_suffix
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.records.doctor.machine import FoundPath, MachineFacts
from jupyter_mntrain.model.text.foreign import shown_line

MOST_NAMED = 5

THERE: Final = ("folder", "file")
OF_MODELS: Final = (".json", ".safetensors", ".jinja", ".model", ".txt")
"""Suffixes of what the trainer reads, next to weights that are not in safetensors."""


class ImportedModules(Check):
    """Check that the modules that a script imports exist.

    Imports in functions or conditions are uncertain.
    """

    id = "imported-modules"
    title = "Modules"
    looks_at = (
        "with --for: whether the interpreter of jobs finds the modules that a script imports, and "
        "whether their text has the names that it imports from them"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        script = case.job.script if case.job else None
        needs = (*script.modules, *script.names) if script else ()
        maybe = {one.what for one in needs if not one.is_certain}
        for node in case.nodes:
            if node.facts is None:
                yield self.unknown(node, "its agent did not report it")
            elif node.facts.lacking is not None:
                unsent = case.job.unsent if case.job else {}
                has_project = case.job is not None and case.job.has_project
                yield self._judged(node, node.facts, maybe, unsent, has_project=has_project)

    def _judged(
        self,
        node: CheckedNode,
        facts: MachineFacts,
        maybe: Collection[str],
        unsent: Mapping[str, Unsent],
        *,
        has_project: bool,
    ) -> Finding:
        if not facts.lacking:
            return self.passed(node, "found")
        judge = self.slows if set(facts.lacking) <= set(maybe) else self.stops
        python = facts.loaded.python if facts.loaded else "the interpreter of its jobs"
        modules = [one for one in facts.lacking if ":" not in one]
        if not modules:
            module, _, name = shown_line(facts.lacking[0]).partition(":")
            first = module.partition(".")[0]
            return judge(
                node,
                f"no {name}",
                Kind.NO_MODULE,
                cause=f"{module} of {python} has no {name}, which the job imports: its {first} "
                "is of another version",
                fix=f"on {node.name}: {python if facts.loaded else 'python'} -m pip install "
                f"--upgrade the package that has {first}, or have the script import what this "
                "version has",
            )
        names = ", ".join(map(shown_line, modules[:MOST_NAMED]))
        own = "--project DIR"
        if has_project:
            own = "put them into the folder that is sent, and name where: --env PYTHONPATH=FOLDER"
        here = next((one for one in modules if one in unsent and unsent[one].how), None)
        return judge(
            node,
            f"no {names}",
            Kind.NO_MODULE,
            cause=f"{python} does not find {names}, which the job imports",
            fix=f"{shown_line(here)} is here: launch with {shown_line(unsent[here].how)}"
            if here is not None
            else f"on {node.name}: {python if facts.loaded else 'python'} -m pip install the "
            f"packages that have them; or send your own modules: {own}",
        )


class WholeModel(NodeCheck):
    """Check that each node has the whole model.

    Its agent reports what the trainer there would refuse.
    """

    id = "whole-model"
    title = "Model"
    looks_at = (
        "of a job: whether the trainer can use its model's folder: the family is described, no "
        "adapter or quantized weights, all files that its index lists, and a tokenizer"
    )

    def look(self, node: CheckedNode, facts: MachineFacts) -> Finding | None:
        models = [
            one for one in facts.paths if one.use in ("model", "tokenizer") and one.kind in THERE
        ]
        for one in models:
            if one.trouble is not None:
                return self.found("stops", node, "unusable", one.trouble)
        return self.passed(node, "usable") if models else None


class SameContents(Check):
    id = "same-files"
    title = "Same files"
    looks_at = (
        "of a job: whether what it reads of its model and data, and what its script reads by a "
        "relative path, is the same on all nodes, by names, sizes and the content of small files"
    )

    def findings(self, case: Case) -> Iterable[Finding]:
        by_path: dict[tuple[str, str], list[tuple[CheckedNode, FoundPath]]] = {}
        for node in case.nodes:
            for one in node.facts.paths if node.facts else ():
                if read := _read(one):
                    compared = msgspec.structs.replace(one, files=read)
                    by_path.setdefault((one.use, one.asked), []).append((node, compared))
        for copies in by_path.values():
            if len(copies) > 1:
                yield from self._compared(copies)

    def _compared(self, copies: Sequence[tuple[CheckedNode, FoundPath]]) -> Iterable[Finding]:
        counted = Counter(tuple(sorted(one.files.items())) for _, one in copies).most_common(1)
        usual = dict(counted[0][0])
        holder = next(node for node, one in copies if one.files == usual)
        for node, one in copies:
            if one.files == usual:
                yield self.passed(node, "the same")
                continue
            what = _difference(one.files, usual)
            if one.use == "input":
                yield self._other_input(node, one, holder, what)
                continue
            yield self.stops(
                node,
                what,
                Kind.NO_FILE,
                cause=f"{shown_line(one.path)}, the {one.use} of the job, is not the same as on "
                f"{holder.name}: {what}",
                fix=f"copy it again from {holder.name}: rsync -a --checksum, or mntrain push "
                "under another name",
            )

    def _other_input(
        self, node: CheckedNode, one: FoundPath, holder: CheckedNode, what: str
    ) -> Finding:
        """Return a warning that a file differs: each node may be meant to have its own part."""
        return self.slows(
            node,
            what,
            Kind.NO_FILE,
            cause=f"{shown_line(one.path)}, which the script reads, is not the same as on "
            f"{holder.name}: {what}",
            fix=f"copy it again from {holder.name}: rsync -a --checksum; if each node is to have a "
            "part of its own, go on",
        )


def _read(one: FoundPath) -> dict[str, str]:
    """Return the checksums of files that the trainer reads.

    Others, like a README or weights in another format, may differ between nodes.
    """
    if one.use == "model":
        has_better = any(name.endswith(".safetensors") for name in one.files)
        suffixes = OF_MODELS if has_better else (*OF_MODELS, ".bin")
        names = (name for name in one.files if PurePath(name).suffix in suffixes)
        return {name: one.files[name] for name in names if "/" not in name}
    if one.use != "data" or one.kind == "file":
        return one.files
    of_data = (".arrow",) if "dataset_info.json" in one.files else DATA_FILES
    return {
        name: told
        for name, told in one.files.items()
        if data_suffix(name) in of_data and PurePath(name).stem != "README"
    }


def _difference(own: dict[str, str], usual: dict[str, str]) -> str:
    """Return the first file that differs."""
    lost = next((name for name in usual if name not in own), None)
    if lost is not None:
        return f"it lacks {shown_line(lost)}"
    changed = next((name for name in usual if own[name] != usual[name]), None)
    if changed is not None:
        return f"{shown_line(changed)} differs"
    return f"it has {shown_line(next(name for name in own if name not in usual))}, too"
