"""Accelerate's options: the variables that ``accelerate launch`` sets for each rank, from its own
options and its configuration file. Under torchrun nobody sets them, and the script would train
without FSDP, DeepSpeed or its precision, and not say so. Reads that file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jupyter_mntrain.launch.files.hub_names import hub_home
from jupyter_mntrain.model.errors import SpecError
from jupyter_mntrain.model.failure.kinds import Kind
from jupyter_mntrain.model.whereabouts import in_home
from jupyter_mntrain.workload.workload import read_text

CONFIG_FILE: Final = "ACCELERATE_DEEPSPEED_CONFIG_FILE"
"""The variable that names DeepSpeed's own configuration file."""

_SWITCHES: Final = {
    "use_fsdp": ("FSDP", "fsdp_", ""),
    "use_megatron_lm": ("MEGATRON_LM", "megatron_lm_", ""),
    "use_parallelism_config": ("", "parallelism_config_", ""),
    "use_deepspeed": ("DEEPSPEED", "", ""),
}
"""An option that switches something on, its ``distributed_type`` in the file, and how the names of
what belongs to it begin."""
_DEEPSPEED: Final = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_moe_layer_cls_names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
    "deepspeed_config_file": CONFIG_FILE,
}
_RENAMED: Final = {"fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP"}
_FSDP_DEFAULTS: Final = {
    "fsdp_cpu_ram_efficient_loading": "true",
    "fsdp_sync_module_states": "true",
    "fsdp_use_orig_params": "true",
}
"""Of the launcher; a script that nobody tells takes the opposite."""
_SECTIONS: Final = {"fsdp_config": "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""Parts of the file whose names may leave out their beginning."""


def rank_variables(options: Mapping[str, str]) -> dict[str, str]:
    """Return what ``accelerate launch`` sets for each rank and torchrun does not.

    Args:
        options: of its line, without dashes at their beginning and with ``_``; ``true`` for one
            without a value. Without ``config_file`` it is the file that ``accelerate config``
            writes, if there is one.

    Raises:
        SpecError: the file cannot be read.
    """
    config = {} if "cpu" in options else _config(options.get("config_file"))
    kind = (
        ""
        if {*_SWITCHES, "multi_gpu", "tpu"} & {*options}
        else str(config.get("distributed_type", ""))
    )
    settings = {**dict(_flat(config)), **options}
    return dict(_variables(settings, kind, has_parallelism=bool(config.get("parallelism_config"))))


def _variables(
    settings: Mapping[str, str], kind: str, *, has_parallelism: bool
) -> Iterator[tuple[str, str]]:
    precision = settings.get("mixed_precision", "no")
    if precision != "no":
        yield "ACCELERATE_MIXED_PRECISION", precision
    if precision == "fp8":
        yield from _named(settings, "fp8_", "ACCELERATE_")
    if settings.get("dynamo_backend", "no").lower() != "no":
        yield from _named(settings, "dynamo_", "ACCELERATE_")
    for switch, (its_kind, prefix, before) in _SWITCHES.items():
        is_on = switch in settings or (its_kind and its_kind == kind)
        if not is_on and not (has_parallelism and switch == "use_parallelism_config"):
            continue
        yield f"ACCELERATE_{switch.upper()}", "true"
        if prefix:
            defaults = _FSDP_DEFAULTS if switch == "use_fsdp" else {}
            yield from _named({**defaults, **settings}, prefix, before)
        else:
            yield from ((own, settings[one]) for one, own in _DEEPSPEED.items() if one in settings)


def _named(settings: Mapping[str, str], prefix: str, before: str) -> Iterator[tuple[str, str]]:
    for name, value in sorted(settings.items()):
        if name.startswith(prefix):
            yield _RENAMED.get(name, f"{before}{name.upper()}"), value


def _flat(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of all sections, by the names of the options."""
    for name, value in config.items():
        if isinstance(value, dict):
            prefix = _SECTIONS.get(name, "")
            named = {f"{prefix}{key.removeprefix(prefix)}": one for key, one in value.items()}
            yield from _flat(named)
        elif value is not None:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _config(name: str | None) -> Mapping[str, Any]:
    import yaml

    path = in_home(name) if name else hub_home() / "accelerate" / "default_config.yaml"
    if name is None and not path.is_file():
        return {}
    try:
        found = yaml.safe_load(read_text(path, "configuration of Accelerate"))
    except yaml.YAMLError as error:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        at = f", line {mark.line + 1}" if mark is not None else ""
        cause = f"{path}{at}: not YAML"
        raise SpecError(cause, fix="correct it", kind=Kind.BAD_COMMAND) from None
    return found if isinstance(found, dict) else {}
