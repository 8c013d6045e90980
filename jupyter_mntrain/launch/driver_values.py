"""Driver values: fills in variables that a job takes from the environment of its driver."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from jupyter_mntrain.model.errors import SpecError, bad_argument
from jupyter_mntrain.model.records.job import JobSpec


def with_values(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """Return the spec with the missing values of its variables, from the driver's environment.

    Args:
        environment: the driver's own.

    Raises:
        SpecError: a variable is not set there, or this is no spec.
    """
    if not isinstance(spec, JobSpec):
        raise bad_argument("spec", spec, "a JobSpec; the verb launch makes one from a recipe")
    missing = [name for name in spec.from_environment if name not in spec.environment]
    unset = [name for name in missing if name not in environment]
    if unset:
        names = ", ".join(unset)
        one = unset[0]
        raise SpecError(
            f"the job takes {names} from the environment that it is launched from, and "
            f"{'it is' if len(unset) == 1 else 'they are'} not set there",
            fix=f"set it first: export {one}=… in a shell, in a notebook "
            f"os.environ[{one!r}] = getpass.getpass(); or give it with --env {one}=VALUE",
        )
    found = {name: environment[name] for name in missing}
    return msgspec.structs.replace(spec, environment=spec.environment | found) if found else spec
