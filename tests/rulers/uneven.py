"""A script of a user's, whose steps, tokens and pauses differ; keeps an account of its own.

``KIND`` is lengths, tokens, pauses, ranks or restart, ``STEPS`` how many; the account of each rank
is a line per step in ``LEDGER.<attempt>.<rank>``: its number, when it began and ended, and its
tokens.
"""

import os
import time

import torch
import torch.distributed as dist

from jupyter_mntrain import Recorder

KIND, STEPS = os.environ["KIND"], int(os.environ["STEPS"])
ATTEMPT = os.environ.get("MNTRAIN_ATTEMPT", "1")


def turn(step: int, rank: int) -> tuple[int, float, float]:
    """Tokens, seconds and loss."""
    if KIND == "lengths":
        return 1000, 1.5 if step % 5 == 0 else 0.1, 3.0 / step**0.3
    if KIND == "tokens":
        return (8000, 0.4, 3.0) if step % 5 in {0, 2} else (100, 0.1, 3.0)
    if KIND == "ranks":
        return ((1000, 0.2, 2.0), (3000, 0.2, 6.0))[rank]
    return 1000, 0.2, 3.0 / step**0.3


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    begins = STEPS // 3 if KIND == "restart" and ATTEMPT != "1" else 0
    with (
        Recorder() as recorder,
        open(f"{os.environ['LEDGER']}.{ATTEMPT}.{rank}", "w", buffering=1) as ledger,  # noqa: PTH123
    ):
        recorder.start(total_steps=STEPS, resumed_step=begins or None)
        begun = time.monotonic()
        for step in range(begins + 1, STEPS + 1):
            tokens, seconds, loss = turn(step, rank)
            time.sleep(seconds)
            dist.all_reduce(torch.zeros(1))
            recorder.step(step=step, tokens=tokens, loss=loss)
            ended = time.monotonic()
            print(step, begun, ended, tokens, file=ledger)
            if KIND == "restart" and ATTEMPT == "1" and step == STEPS // 2:
                raise SystemExit("this attempt fails")
            if KIND == "pauses" and step % 10 == 0:
                time.sleep(2.0)
                if step % 20 == 0:
                    recorder.evaluated(step, 5.0)
                else:
                    recorder.saved(step)
            begun = ended
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
