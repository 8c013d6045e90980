"""Starts a grandchild in a session of its own, as torchrun does with ranks, and ends."""

import subprocess
import sys

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
