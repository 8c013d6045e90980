"""Runs until SIGTERM."""

import time

print("ready", flush=True)
time.sleep(600)
