"""Starts a rank that saves for longer than any grace, and waits for it."""

import os
import signal
import subprocess
import sys
import time


def save():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(600)


if "RANK" in os.environ:
    save()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
own = os.environ | {"RANK": "3", "LOCAL_RANK": "1"}
subprocess.run([sys.executable, __file__], env=own, check=False)
