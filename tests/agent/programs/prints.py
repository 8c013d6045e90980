"""Prints a 200 kB line without a newline, and bytes that are not UTF-8."""

import sys

sys.stdout.buffer.write(b"x" * 200_000 + b"\xff\xfe")
