"""Prints a 200 kB line without an end, and bytes that are no text."""

import sys

sys.stdout.buffer.write(b"x" * 200_000 + b"\xff\xfe")
