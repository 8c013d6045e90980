"""Waits on SIGTERM for its child, as torchrun does; the child ignores SIGTERM."""

import signal
import subprocess
import sys
from pathlib import Path

child = subprocess.Popen([sys.executable, str(Path(__file__).with_name("ignores_term.py"))])
signal.signal(signal.SIGTERM, lambda *_: print("asked", flush=True))
child.wait()
