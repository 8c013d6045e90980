"""Starts a grandchild in its own session, as torchrun does with ranks, and exits."""

import subprocess
import sys

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
