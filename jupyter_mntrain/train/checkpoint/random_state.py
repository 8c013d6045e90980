"""Random state: that of a rank's random number generators, for models with dropout."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jupyter_mntrain.train.world import World


def random_state(world: World) -> dict[str, torch.Tensor]:
    """The state of this rank's generators, by its names in a checkpoint."""
    state = {f"random/{world.rank}/cpu": torch.get_rng_state()}
    if world.device.type == "cuda":
        state[f"random/{world.rank}/cuda"] = torch.cuda.get_rng_state(world.device)
    return state


def set_random_state(world: World, state: Mapping[str, torch.Tensor]) -> None:
    """Go on with the state of a checkpoint, as far as it has one."""
    if (cpu := state.get(f"random/{world.rank}/cpu")) is not None:
        torch.set_rng_state(cpu)
    cuda = state.get(f"random/{world.rank}/cuda")
    if cuda is not None and world.device.type == "cuda":
        torch.cuda.set_rng_state(cuda, world.device)
