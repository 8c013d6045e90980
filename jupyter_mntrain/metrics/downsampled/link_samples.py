"""Link samples: the samples of one interface as columns, one per second and node."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import overload

from jupyter_mntrain.metrics.downsampled.blocks import from_bytes
from jupyter_mntrain.metrics.downsampled.samples import LINK_BLOCK, Blocks
from jupyter_mntrain.model.records.metrics import LinkSample

WIDTH = len(LINK_BLOCK)


class LinkSamples(Sequence[LinkSample]):
    """A snapshot of an interface's samples; copies nothing.

    What a sample says of the capacity as the one before did is left out.

    Args:
        told: by index, what the samples say that say something new of the capacity.
        gone: so many more had been taken than there are: the older ones are means of several.
    """

    __slots__ = ("_data", "_length", "_told", "gone")

    def __init__(self, data: array[float], told: dict[int, LinkSample], gone: int = 0) -> None:
        self._data = data
        self._length = len(data) // WIDTH
        self._told = told
        self.gone = gone

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> LinkSample: ...
    @overload
    def __getitem__(self, index: slice) -> list[LinkSample]: ...
    def __getitem__(self, index: int | slice) -> LinkSample | list[LinkSample]:
        if isinstance(index, slice):
            return [self[one] for one in range(self._length)[index]]
        number = range(self._length)[index]
        begin = number * WIDTH
        time_s, interval_s, sent, received = self._data[begin : begin + WIDTH]
        told = self._told.get(number)
        return LinkSample(
            time_s=time_s,
            interface=(told or self._told[0]).interface,
            interval_s=interval_s,
            sent_bytes=round(sent),
            received_bytes=round(received),
            given=told.given if told else None,
            links=told.links if told else None,
        )


class LinkLines:
    """The samples of an interface; when there are too many, the older half is joined in pairs."""

    __slots__ = ("_data", "_newest", "_told", "gone")

    def __init__(self) -> None:
        self.gone = 0
        self._data = array("d")
        self._told: dict[int, LinkSample] = {}
        self._newest: LinkSample | None = None
        """The newest sample with a change of the capacity."""

    def __len__(self) -> int:
        return len(self._data) // WIDTH

    def snapshot(self) -> LinkSamples:
        """Return a snapshot, which later samples do not change."""
        return LinkSamples(self._data, self._told, self.gone)

    def take(self, sample: LinkSample, most: int) -> None:
        """Take the next sample.

        Args:
            most: that are kept.
        """
        known = self._newest
        is_same = known is not None and (
            sample.given == known.given and sample.links in (None, known.links)
        )
        if not is_same:
            self._told[len(self)] = self._newest = sample
        self._data.extend(
            (sample.time_s, sample.interval_s, sample.sent_bytes, sample.received_bytes)
        )
        if len(self) > most:
            self._join(len(self) // 4 * 2)

    def load(self, blocks: Blocks, newest: LinkSample) -> None:
        """Take the blocks that an agent has sent, and its newest sample.

        Raises:
            ValueError: they are not whole.
        """
        data = from_bytes(blocks.data)
        if len(data) % WIDTH:
            raise ValueError("not whole blocks")
        self._told = {0: newest}
        self._newest = newest
        self._data = data or array(
            "d", (newest.time_s, newest.interval_s, newest.sent_bytes, newest.received_bytes)
        )

    def _join(self, count: int) -> None:
        """Join the first ``count`` samples in pairs; snapshots keep what they have."""
        data, told = array("d"), {}
        for begin in range(0, count * WIDTH, 2 * WIDTH):
            one, two = (self._data[at : at + WIDTH] for at in (begin, begin + WIDTH))
            data.extend((two[0], one[1] + two[1], one[2] + two[2], one[3] + two[3]))
        data.extend(self._data[count * WIDTH :])
        for index, sample in self._told.items():
            told[index // 2 if index < count else index - count // 2] = sample
        self._data, self._told = data, told
        self.gone += count // 2
