"""``report``: writes everything that is known of a job into one archive, for others.

That is its verdict, record with evidence, numbers and logs, and its nodes' versions, packages and
GPUs.
"""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from rich.text import Text

from jupyter_mntrain.command_line.parser import Parser
from jupyter_mntrain.model.errors import MntrainError, SpecError
from jupyter_mntrain.model.records.hidden import cleaned, hidden_values
from jupyter_mntrain.model.records.job import JobView
from jupyter_mntrain.model.text.file_name import file_name
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.show.log_lines import written_line
from jupyter_mntrain.verbs.new_file import force_flag, new_file, output_option
from jupyter_mntrain.verbs.verb import Context, Outcome, Verb, find_job, job_argument

if TYPE_CHECKING:
    from jupyter_mntrain.cluster import Cluster, Job

_OTHER_ARCHIVES = re.compile(r"\.(tar(\.\w+)?|t[gbx]z2?|7z|rar|gz|bz2|xz|zst)$", re.IGNORECASE)

LOG_LINES = 20000
"""Last lines of each node's log in a report."""


class ReportVerb(Verb):
    def add_arguments(self, parser: Parser) -> None:
        job_argument(parser)
        output_option(parser, help="where to write it; default: mntrain-report-JOB.zip")
        force_flag(parser)

    def run(self, context: Context, args: Namespace) -> Outcome:
        job = find_job(context, args)
        name = args.output or f"mntrain-report-{job.id}.zip"
        if _OTHER_ARCHIVES.search(name):
            raise SpecError(
                f"--output {name}: the report is a zip archive",
                fix=f"name it {_OTHER_ARCHIVES.sub('.zip', name)}",
            )
        path = context.directory / in_home(name)
        with new_file(path, name, may_replace=args.force) as file:
            parts = write_report(file, job, context.cluster(args))
        said = Text.assemble(
            (job.id, "bold"), f": {len(parts)} files written to {name}. Secrets are left out, as "
            "far as they are recognized: look through it before you send it."
        )  # fmt: skip
        return Outcome(said, {"job_id": job.id, "file": name, "parts": parts}, job=job)


def write_report(file: BinaryIO, job: Job, cluster: Cluster) -> list[str]:
    """Write the archive; return the names of its parts."""
    view = job.view()
    with suppress(MntrainError):  # no node that has it answers: the rest tells enough
        view = msgspec.structs.replace(view, spec=job.spec())
    secrets = hidden_values(view.spec)
    names = []
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _parts(job, view, cluster):
            seen = cleaned(content, secrets)
            archive.writestr(name, seen if isinstance(seen, str) else _json(seen))
            names.append(name)
    return names


def _parts(job: Job, view: JobView, cluster: Cluster) -> Iterator[tuple[str, Any]]:
    """Yield the files of the archive, the verdict first: text, or data for JSON."""
    verdict = view.verdict
    if verdict is not None:
        yield "verdict.txt", f"{verdict.problem}\n{verdict.reasons}\n\n{verdict.problem.detail}\n"
    yield "job.json", view
    yield "numbers.json", job.summary()
    members = {placement.node_id for placement in view.attempt.placements}
    for node in cluster.nodes():
        if node.info is None or node.info.node_id in members:
            yield f"nodes/{file_name(node.name)}.json", node
    for name, machine in job.describe_machines().items():
        if isinstance(machine, MntrainError):
            yield f"nodes/{file_name(name)}.error.txt", f"{machine}\n"
            continue
        packages = [f"{package} {version}" for package, version in machine.packages.items()]
        told = "\n".join([machine.system, "", *packages, ""])
        yield f"nodes/{file_name(name)}.packages.txt", told
        yield f"nodes/{file_name(name)}.nvidia-smi.txt", f"{machine.nvidia_smi}\n"
    for placement in view.attempt.placements:
        said = "".join(map(written_line, job.logs(node=placement.node, tail=LOG_LINES)))
        if said:
            yield f"logs/{file_name(placement.node)}.txt", said


def _json(content: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(content)).decode()
