"""Starts a child in another session, with an empty environment."""

import subprocess
import sys
import time

child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={}
)
print("ready", child.pid, flush=True)
time.sleep(600)
