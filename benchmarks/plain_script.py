"""Hand-written pipeline script for two machines: torchrun, Schedule1F1B, a Llama in two stages.

Prints the seconds of each step on rank 0, as JSON, one per line. Does not use mntrain.
"""

from __future__ import annotations

import argparse
import json
import os
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM


class Part(nn.Module):
    def __init__(self, model: LlamaForCausalLM, rank: int, layers: int) -> None:
        super().__init__()
        whole = model.model
        self.embed = whole.embed_tokens if rank == 0 else None
        half = whole.layers[: layers // 2] if rank == 0 else whole.layers[layers // 2 :]
        self.layers = nn.ModuleList(half)
        self.rotary = whole.rotary_emb
        self.norm = whole.norm if rank == 1 else None
        self.head = model.lm_head if rank == 1 else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(value) if self.embed is not None else value
        places = torch.arange(hidden.shape[1]).unsqueeze(0)
        rotations = self.rotary(hidden, places)
        for layer in self.layers:
            hidden = layer(hidden, position_embeddings=rotations, attention_mask=None)
        return self.head(self.norm(hidden)) if self.head is not None else hidden


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "intermediate", "heads", "vocabulary", "length", "batch"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=14)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=args.layers,
            hidden_size=args.hidden,
            intermediate_size=args.intermediate,
            num_attention_heads=args.heads,
            num_key_value_heads=args.heads,
            vocab_size=args.vocabulary,
        )
    )
    part = Part(model, rank, args.layers)
    stage = PipelineStage(part, rank, 2, torch.device("cpu"))

    def loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(logits.flatten(0, 1), labels.flatten())

    schedule = Schedule1F1B(stage, args.microbatches, loss_fn=loss)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3, fused=True)
    for _ in range(args.steps):
        ids = torch.randint(args.vocabulary, (args.batch, args.length + 1))
        begin = time.perf_counter()
        if rank == 0:
            schedule.step(ids[:, :-1].contiguous())
        else:
            schedule.step(target=ids[:, 1:].contiguous())
        nn.utils.clip_grad_norm_(part.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(json.dumps(time.perf_counter() - begin), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
