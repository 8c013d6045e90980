"""Directions: receives on a stream of their own, where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from jupyter_mntrain.recipe.layout import Layout
from jupyter_mntrain.train.pipeline.directions import ReceiveStream


class FakeStream:
    """Stands in for a CUDA stream; notes what it waits for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.waited: list[object] = []

    def wait_stream(self, other: object) -> None:
        self.waited.append(other)


def test_a_receive_is_posted_on_its_own_stream_after_the_steps_before() -> None:
    computing, device = object(), torch.device("cuda", 0)
    entered: list[FakeStream] = []

    @contextmanager
    def enter(stream: FakeStream) -> Iterator[None]:
        entered.append(stream)
        yield

    with (
        patch("torch.cuda.Stream", FakeStream),
        patch("torch.cuda.stream", enter),
        patch("torch.cuda.current_stream", lambda _device: computing),
    ):
        receiving = ReceiveStream(device)
        for receives in (3, 2):
            receiving.begin_step()
            for _ in range(receives):
                with receiving.posting():
                    pass
    (stream,) = set(entered)
    assert len(entered) == 5
    assert stream.waited == [computing, computing], "once a step: its buffers are those of the last"


def test_a_cpu_has_no_streams() -> None:
    receiving, done = ReceiveStream(torch.device("cpu")), []
    receiving.begin_step()
    with receiving.posting():
        done.append(torch.ones(1))
    assert len(done) == 1


def test_directions_follow_the_stages() -> None:
    stages = tuple(range(n, n + 1) for n in range(6))
    line = ((0, 1), (1, 0), (1, 2), (2, 1))
    assert Layout(3, stages[:3]).directions() == line
    assert Layout(3, stages, is_v=True).directions() == line
    assert Layout(3, stages).directions() == tuple(sorted({*line, (2, 0), (0, 2)}))
    assert Layout(1, stages[:1]).directions() == ()
