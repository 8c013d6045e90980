"""Runs until it is asked to end."""

import time

print("ready", flush=True)
time.sleep(600)
