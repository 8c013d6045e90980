"""Ends on SIGTERM without telling its child, like a torchrun that was killed."""

import signal
import subprocess
import sys
import time

CHILD = """
import signal, sys, time
def asked(*_):
    print("rank", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, asked)
print("ready", flush=True)
time.sleep(600)
"""


def asked(*_: object) -> None:
    time.sleep(0.5)  # time for whoever asks the child directly to be found out
    print("torchrun", flush=True)
    sys.exit(5)


signal.signal(signal.SIGTERM, asked)
subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True)
time.sleep(600)
