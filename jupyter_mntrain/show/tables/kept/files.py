"""Tables of large files: what was copied where, what nodes store, and what can be deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from jupyter_mntrain.launch.files.records import Cleaned, HeldThing, NodeSpace
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.quantities import rough_size
from jupyter_mntrain.model.text.foreign import shown_line, shown_name
from jupyter_mntrain.show import formats
from jupyter_mntrain.show.problems import problem_text
from jupyter_mntrain.show.tables._plain import folding, plain_table

if TYPE_CHECKING:
    from jupyter_mntrain.cluster.files.job_files import PulledFiles, WrittenFiles
    from jupyter_mntrain.cluster.files.pushing import Pushed
    from jupyter_mntrain.cluster.handle.large_files import Pulled

MOST_NAMED = 3
"""Number of files that a line names."""


def pushed_text(pushed: Pushed) -> RenderableType:
    """Say which nodes have it now, how fast it was copied, and why other nodes lack it."""
    lines = []
    came = [node for node in pushed.nodes if node not in pushed.had]
    if came:
        size, took = rough_size(pushed.size_bytes), formats.duration(pushed.took_s)
        speed = formats.byte_rate(pushed.size_bytes / max(pushed.took_s, 1e-3))
        text = Text.assemble((pushed.name, "bold"), f" is on {_names(came)}")
        lines.append(text.append(f": {size} in {took}, {speed} to each"))
    if pushed.had:
        lines.append(Text.assemble((pushed.name, "bold"), f" was on {_names(pushed.had)} already"))
    lines += [_silence(node, problem) for node, problem in pushed.failed.items()]
    if pushed.failed:
        lines.append(Text("What has arrived stays: repeat the push to continue.", "dim"))
    return folding(lines)


def pulled_text(pulled: Pulled) -> RenderableType:
    speed = formats.byte_rate(pulled.size_bytes / max(pulled.took_s, 1e-3))
    size = rough_size(pulled.size_bytes)
    return folding(
        [Text.assemble((shown_name(pulled.path), "bold"), f": {size} from {pulled.node}, {speed}")]
    )


def written_text(job_id: str, written: WrittenFiles, program: str) -> Text:
    """Return what a job wrote, in one line; empty if nothing."""
    if not written.count:
        return Text()
    named = ", ".join(map(shown_name, written.paths[:MOST_NAMED]))
    more = ", …" if written.count > MOST_NAMED else ""
    count, size = formats.plural(written.count, "file"), rough_size(written.size_bytes)
    return Text(f"wrote {count}, {size}: {named}{more}; to fetch: {program} pull {job_id}", "dim")


def written_data(written: WrittenFiles) -> dict[str, object]:
    return {"count": written.count, "size_bytes": written.size_bytes, "paths": written.paths}


def by_node(name: str, found: Mapping[str, object]) -> dict[str, object]:
    """Return the answers of nodes under ``name``, and the problems of nodes that failed."""
    said = {node: one for node, one in found.items() if not isinstance(one, Problem)}
    problems = [
        one if one.node else msgspec.structs.replace(one, node=node)
        for node, one in found.items()
        if isinstance(one, Problem)
    ]
    return {name: msgspec.to_builtins(said), "problems": msgspec.to_builtins(problems)}


def written_table(written: WrittenFiles) -> RenderableType:
    """Return each file with its size and the nodes that have it, and what else is there."""
    table = plain_table("file", "size", "node", right=("size",))
    of: dict[tuple[str, int], list[str]] = {}
    for node, held in written.nodes.items():
        for one in held.files:
            of.setdefault((one.path, one.size_bytes), []).append(node)
    for (path, size), nodes in sorted(of.items()):
        table.add_row(shown_name(path), rough_size(size), _names(nodes))
    below = [_silence(node, problem) for node, problem in written.silent.items()]
    for node, held in written.nodes.items():
        below += [_left_out(f"{node}: {name}", why) for name, why in held.left_out.items()]
        if held.count > len(held.files):
            count = formats.plural(held.count - len(held.files), "more file")
            below.append(Text(f"{shown_name(node)} has {count}", "yellow"))
    total = f"{formats.plural(written.count, 'file')}, {rough_size(written.size_bytes)}"
    return Group(table, folding([Text(total, "dim"), *below]))


def pulled_files_text(pulled: PulledFiles) -> RenderableType:
    """Say where the files are now, where they came from, and what was not copied."""
    count, nodes = formats.plural(pulled.count, "file"), _names(list(pulled.nodes))
    size = rough_size(pulled.size_bytes)
    speed = formats.byte_rate(sum(pulled.nodes.values()) / max(pulled.took_s, 1e-3))
    path = Text.assemble(
        (shown_name(pulled.path), "bold"), f": {count}, {size} from {nodes}, {speed}"
    )
    left_out = [_left_out(name, why) for name, why in pulled.left_out.items()]
    return folding([path, *_differing(pulled), *left_out])


def _differing(pulled: PulledFiles) -> list[Text]:
    """Return the files that differ between nodes, and where each node's version is."""
    if not pulled.differ:
        return []
    more = ", …" if len(pulled.differ) > MOST_NAMED else ""
    named = ", ".join(map(shown_name, pulled.differ[:MOST_NAMED]))
    folders = ", ".join(f"{shown_name(one)}/" for one in pulled.folders.values())
    count = formats.plural(len(pulled.differ), "file")
    return [Text(f"  not the same on all nodes, so in {folders}: {count}: {named}{more}", "yellow")]


def _left_out(name: str, why: str) -> Text:
    return Text(f"  {shown_line(name)} is left out: {shown_line(why)}", "yellow")


def space_table(found: Mapping[str, NodeSpace | Problem], *, now_s: float) -> RenderableType:
    """Return what each node stores, with size and last use, and the free space on its disks."""
    table = plain_table("node", "what", "size", "last used")
    below: list[Text] = []
    for node, space in found.items():
        if isinstance(space, Problem):
            below.append(_silence(node, space))
            continue
        for thing in space.things:
            used = "—" if thing.used_s is None else formats.age(max(0.0, now_s - thing.used_s))
            what = shown_line(thing.what)
            table.add_row(shown_name(node), what, rough_size(thing.size_bytes), used)
        free = ", ".join(
            f"{name} {shown_name(path)} ({_free(space.free_bytes.get(name))} free)"
            for name, path in space.roots.items()
        )
        below.append(Text(f"{shown_name(node)}: {free}", "dim"))
    return Group(table, folding(below))


def cleaned_text(found: Mapping[str, Cleaned | Problem], command: str) -> RenderableType:
    """Return what was deleted on each node, or would be deleted by a command.

    Args:
        command: empty if it is done.
    """
    lines: list[Text] = []
    does = "would delete" if command else "deleted"
    for node, cleaned in found.items():
        if isinstance(cleaned, Problem):
            lines.append(_silence(node, cleaned))
            continue
        size = sum(one.size_bytes for one in cleaned.things)
        what = f"{does} {rough_size(size)}" if cleaned.things else "nothing to delete"
        lines.append(Text.assemble((shown_name(node), "bold"), f": {what}"))
        lines += [_thing(one) for one in cleaned.things]
        lines += [
            Text(f"  {shown_line(name)} is not deleted: {shown_line(why)}", "yellow")
            for name, why in cleaned.kept.items()
        ]
    if command and any(isinstance(one, Cleaned) and one.things for one in found.values()):
        lines.append(Text(f"nothing is deleted yet; to do it: {command}", "dim"))
    return folding(lines)


def _thing(one: HeldThing) -> Text:
    return Text(f"  {shown_line(one.what)}, {rough_size(one.size_bytes)}")


def _silence(node: str, problem: Problem) -> Text:
    return problem_text(msgspec.structs.replace(problem, node=problem.node or node))


def _names(nodes: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(shown_name, nodes))


def _free(value_bytes: int | None) -> str:
    return formats.ABSENT if value_bytes is None else rough_size(value_bytes)
