"""Link settings: what a network card has agreed on with the other end, asked of the kernel."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_SIOCETHTOOL: Final = 0x8946
_GLINKSETTINGS: Final = 0x4C
_HEADER: Final = struct.Struct("=IIBBBBBBBbBBBB28x")
"""``struct ethtool_link_settings`` of ``linux/ethtool.h``; three masks of modes follow."""
_MOST_WORDS: Final = 32
_UNKNOWN_SPEED: Final = 0xFFFFFFFF
_HALF: Final = 0

_MODES: Final[dict[int, tuple[int, ...]]] = {
    10: (0, 1, 92),
    100: (2, 3, 67, 90, 91),
    1000: (4, 5, 17, 41, 68),
    2500: (15, 47),
    5000: (48,),
    10_000: (12, 18, 19, 20, *range(42, 47)),
    20_000: (21, 22),
    25_000: (31, 32, 33),
    40_000: (23, 24, 25, 26),
    50_000: (34, 35, 40, *range(52, 57)),
    56_000: (27, 28, 29, 30),
    100_000: (*range(36, 40), *range(57, 62), *range(75, 80)),
    200_000: (*range(62, 67), *range(80, 85)),
    400_000: (*range(69, 74), *range(85, 90)),
    800_000: tuple(range(93, 99)),
}
"""Mbit/s, and the bits of their modes: ``enum ethtool_link_mode_bit_indices``."""


class LinkSettings(NamedTuple):
    """What a card says; ``None`` where it does not.

    Args:
        most: the fastest that it can.
        offered: the fastest that it was told to agree to.
        peer_offered: the same of the other end.
    """

    speed_mbit_per_s: int | None = None
    is_half_duplex: bool = False
    most: int | None = None
    offered: int | None = None
    peer_offered: int | None = None


def read_link_settings(name: str) -> LinkSettings | None:
    """Ask a card; ``None`` if its driver has nothing to say, as most virtual ones."""
    if (header := _ask(name, 0)) is None:
        return None
    words = -_HEADER.unpack_from(header)[9]  # the kernel answers with what it wants, negative
    if not 0 < words <= _MOST_WORDS:
        return None
    answer = _ask(name, words)
    return None if answer is None else parse_link_settings(answer)


def parse_link_settings(answer: bytes) -> LinkSettings:
    """Read the kernel's answer."""
    _, speed, duplex, *_ = header = _HEADER.unpack_from(answer)
    words = header[9]
    size = 4 * words
    supported, offered, peer = (
        int.from_bytes(answer[at : at + size], "little")
        for at in range(_HEADER.size, _HEADER.size + 3 * size, size)
    )
    return LinkSettings(
        speed_mbit_per_s=speed if 0 < speed < _UNKNOWN_SPEED else None,
        is_half_duplex=duplex == _HALF and 0 < speed < _UNKNOWN_SPEED,
        most=_fastest(supported),
        offered=_fastest(offered),
        peer_offered=_fastest(peer),
    )


def mask_of(bits: Iterable[int]) -> int:
    """The mask with these bits."""
    return sum(1 << bit for bit in bits)


def _fastest(mask: int) -> int | None:
    return max((speed for speed, bits in _MODES.items() if mask & mask_of(bits)), default=None)


def _ask(name: str, words: int) -> bytes | None:
    header = _HEADER.pack(_GLINKSETTINGS, 0, *[0] * 7, words, *[0] * 4)
    return ask_kernel(name, header + bytes(3 * 4 * _MOST_WORDS))


def ask_kernel(name: str, question: bytes) -> bytes | None:
    """Ask a card's driver, as ethtool does.

    Args:
        question: begins with its number, and is as long as the answer.
    """
    memory = array.array("B", question)
    request = struct.pack("16sP16x", name.encode()[:15], memory.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)
        except OSError:
            return None
    return memory.tobytes()
