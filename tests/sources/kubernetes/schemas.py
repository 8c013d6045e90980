"""Schemas: those of the projects' own releases, made strict: no field but theirs, at any depth.

Core objects are checked with Kubernetes' own schemas, JobSets and TrainJobs with the models that
Kubeflow generates from their Go types, Kueue's Workloads with records of their fields. Rules in CEL
and webhooks are not among them: what they ask is asserted in the tests.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import kubernetes_validate
import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from kubeflow_trainer_api import models

from tests.sources.kubernetes.kueue_models import KueueWorkload

VERSION = "1.37"

KINDS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "TrainJob": models.TrainerV1alpha1TrainJob,
}


class InvalidObjectError(ValueError):
    pass


def validate(made: dict[str, Any]) -> None:
    """Return if it is an object that the API server would take, as far as schemas say.

    Raises:
        InvalidObjectError: with the path of what is wrong.
    """
    kind = made["kind"]
    if kind == "Workload":
        _validate_workload(made)
        return
    if kind not in KINDS:
        try:
            kubernetes_validate.validate(made, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise InvalidObjectError(f"{'.'.join(map(str, error.path))}: {error}") from error
        return
    if (wrong := best_match(_validator(kind).iter_errors(made))) is not None:
        raise InvalidObjectError(f"{wrong.json_path}: {wrong.message}")
    if kind == "JobSet":
        for replicated in made["spec"]["replicatedJobs"]:
            job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
            validate(job | replicated["template"])


def _validate_workload(made: dict[str, Any]) -> None:
    try:
        msgspec.convert(made, KueueWorkload)
    except msgspec.ValidationError as error:
        raise InvalidObjectError(str(error)) from error
    for one in made["spec"]["podSets"]:
        template = {"metadata": {"name": "x"}, "template": one["template"]}
        validate({"apiVersion": "v1", "kind": "PodTemplate"} | template)


@cache
def _validator(kind: str) -> Draft202012Validator:
    schema = KINDS[kind].model_json_schema(by_alias=True)
    _make_strict(schema)
    return Draft202012Validator(schema)


def _make_strict(schema: Any) -> None:
    if isinstance(schema, list):
        for one in schema:
            _make_strict(one)
    if not isinstance(schema, dict):
        return
    if "actual_instance" in schema.get("properties", ()):
        # A quantity, or a number or a name: the model wraps it, JSON does not.
        schema.clear()
        schema["type"] = ["string", "number"]
    if "properties" in schema and schema.get("type") == "object":
        schema["additionalProperties"] = False
        for one in schema["properties"].values():
            _make_strict(one)
    for name, one in schema.items():
        if name != "properties":
            _make_strict(one)
