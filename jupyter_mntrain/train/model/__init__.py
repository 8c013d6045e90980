"""The model: stages built from transformers' code, with weights, losses and activations."""

from __future__ import annotations

import logging
import os

# Modules of this room import transformers, which reads this once: a training run never contacts the
# hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# transformers imports torchao where it is installed, which then prints four lines about GPU kernels
# that it could not load.
for _talkative in ("torchao", "torch.utils._pytree"):
    logging.getLogger(_talkative).setLevel(logging.ERROR)
