"""Print the JSON schema of all messages between the Jupyter server and the page."""

import json
from typing import Any

import msgspec

from jupyter_mntrain.cluster.files.job_files import WrittenFiles
from jupyter_mntrain.cluster.launch.record_changes import JobRemoval
from jupyter_mntrain.cluster.launch.resume import ResumeOffer
from jupyter_mntrain.metrics.node_history import NodeHistory
from jupyter_mntrain.metrics.page_entries import JobBundle
from jupyter_mntrain.model.api import CheckpointChange
from jupyter_mntrain.model.failure.problem import Problem
from jupyter_mntrain.model.records.node import LinkMeasurement
from jupyter_mntrain.server import benches, long_works, messages, shown_steps
from jupyter_mntrain.show.stacks import ShownStacks
from scripts.figures import describe

RECORDS = (
    messages.ServerMessage,
    messages.PageMessage,
    messages.AddNode,
    messages.AskStacks,
    CheckpointChange,
    messages.EndJob,
    benches.BeginBench,
    benches.BenchState,
    messages.DoctorAnswer,
    messages.DoctorRequest,
    long_works.WorkState,
    messages.ChangedMachine,
    messages.PackedWheel,
    messages.Invitation,
    messages.Invite,
    messages.JobComparison,
    messages.JobLog,
    messages.JobSettings,
    shown_steps.JobTrace,
    messages.LabelJob,
    messages.LaunchJob,
    messages.LaunchedJob,
    messages.RefusedLaunch,
    messages.MeasureLinks,
    messages.SavedOutput,
    Problem,
    messages.ResumeJob,
    JobRemoval,
    ResumeOffer,
    messages.SaveJob,
    messages.SpecFile,
    ShownStacks,
    WrittenFiles,
    JobBundle,
    LinkMeasurement,
    NodeHistory,
)


def definitions() -> dict[str, Any]:
    """The schema of each record, by name."""
    (server_message, *_), found = msgspec.json.schema_components(
        RECORDS, ref_template="#/definitions/{name}"
    )
    describe(found)
    found["ServerMessage"] = {"anyOf": server_message["anyOf"]}
    return found


def main() -> None:
    found = definitions()
    for name, definition in found.items():
        if name == "ServerMessage":
            continue
        # Without this the generator opens every type to arbitrary keys.
        definition["additionalProperties"] = False
        # Defaults would make the generator enumerate tuples of every length instead of an array.
        for field in definition.get("properties", {}).values():
            field.pop("default", None)
    everything = {
        "title": "Everything",
        "type": "object",
        "additionalProperties": False,
        "definitions": found,
        "properties": {name: {"$ref": f"#/definitions/{name}"} for name in found},
    }
    print(json.dumps(everything))


if __name__ == "__main__":
    main()
