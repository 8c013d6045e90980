"""Prints the JSON schema of everything the Jupyter server and the page say to each other."""

import json

import msgspec

from jupyter_mntrain.cluster.entries import JobBundle
from jupyter_mntrain.cluster.measure import LinkMeasurement
from jupyter_mntrain.server import messages

RECORDS = (
    messages.ServerMessage,
    messages.PageMessage,
    messages.AddNode,
    messages.EndJob,
    messages.Invitation,
    messages.Invite,
    messages.JobLog,
    messages.LaunchJob,
    messages.MeasureLinks,
    messages.Problem,
    messages.SaveJob,
    messages.SpecFile,
    JobBundle,
    LinkMeasurement,
)

_, definitions = msgspec.json.schema_components(RECORDS, ref_template="#/definitions/{name}")
for definition in definitions.values():
    # A page may hear from a newer server; without this every type is open to any key.
    definition["additionalProperties"] = False
    # Columns, not tuples of one length: the generator spells 0..n items out otherwise.
    for field in definition.get("properties", {}).values():
        field.pop("default", None)
print(
    json.dumps(
        {
            "title": "Everything",
            "type": "object",
            "additionalProperties": False,
            "definitions": definitions,
            "properties": {name: {"$ref": f"#/definitions/{name}"} for name in definitions},
        }
    )
)
