"""Look: reports a machine's facts as JSON. Sent as it is and run by Python 3.6 or newer.

It imports nothing of ours and changes nothing. Arguments: the environment's directory (``-`` for
the usual one), and an interpreter to take instead (``-`` for none).
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time

PACKAGES = """
import json, sys
from importlib import metadata
found, ours = {}, {}
for one in metadata.distributions():
    name = (one.metadata["Name"] or "").lower().replace("_", "-")
    if not name or name in found:
        continue
    found[name] = one.version
    if name == "jupyter-mntrain":
        ours = json.loads(one.read_text("direct_url.json") or "{}")
try:
    import pip
    has_pip = True
except ImportError:
    has_pip = False
found = {"version": sys.version_info[:3], "packages": found, "ours": ours, "pip": has_pip}
print(json.dumps(found))
"""
TIMEOUT_S = 40
JOB = b"MNTRAIN_JOB="


def environment(python):
    """Return the packages of an interpreter; ``None`` if it does not run."""
    try:
        run = subprocess.run(
            [python, "-P", "-c", PACKAGES]
            if sys.version_info >= (3, 11)
            else [python, "-c", PACKAGES],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
            cwd="/",  # no module of the current directory is meant
        )
        return json.loads(run.stdout.decode().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return None


def memberships():
    """Return the clusters that nodes on this machine belong to, by state directory."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    nodes = os.path.join(base, "mntrain", "nodes")
    found = []
    for name in sorted(os.listdir(nodes)) if os.path.isdir(nodes) else ():
        state = os.path.join(nodes, name)
        try:
            with open(os.path.join(state, "membership.json")) as file:
                known = json.load(file)
            with open(os.path.join(state, "trusted.pem")) as file:
                authority = file.read()
            with open(os.path.join(state, "node_id")) as file:
                node_id = file.read().strip()
        except (OSError, ValueError):
            continue
        # A home directory may be shared by several machines.
        if known.get("hostname") == socket.gethostname():
            found.append(
                {
                    "state": state,
                    "cluster": known["cluster"],
                    "name": known["settings"]["name"],
                    # What has its default is not written.
                    "port": known["settings"].get("port", 8765),
                    "python": known["settings"]["python"],
                    "node_id": node_id,
                    "authority": authority,
                }
            )
    return found


def jobs():
    """Return the ids of jobs whose processes run here, if this user can see them."""
    found = set()  # type: ignore[var-annotated]
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            with open("/proc/%s/environ" % pid, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        found.update(word[len(JOB) :].decode() for word in words if word.startswith(JOB))
    return sorted(found)


def listens(port):
    """Whether something listens on a port of this machine."""
    wanted = "%04X" % port
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        if any(row[1].endswith(":" + wanted) and row[3] == "0A" for row in rows):
            return True
    return False


def free_port(first=8765):
    """Return the first free port from there on: other users have nodes here, too."""
    return next((port for port in range(first, first + 100) if not listens(port)), first)


def has_module(name):
    try:
        __import__(name)
    except ImportError:
        return False
    return True


def free_bytes(path):
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return shutil.disk_usage(path).free


def main():
    home = os.path.expanduser("~")
    where = sys.argv[1]
    if where == "-":
        data = os.environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
        where = os.path.join(data, "mntrain", "env")
    where = os.path.abspath(os.path.join(home, os.path.expanduser(where)))
    given = os.path.expanduser(sys.argv[2])
    python = os.path.join(where, "bin", "python") if given == "-" else shutil.which(given) or given
    found = memberships()
    sys.stdout.write(
        json.dumps(
            {
                "python": sys.executable,
                "version": list(sys.version_info[:3]),
                "venv": has_module("venv") and has_module("ensurepip"),
                "system": platform.system(),
                "hostname": socket.gethostname(),
                "is_root": os.geteuid() == 0,
                "time_s": time.time(),
                "where": where,
                "exists": os.path.exists(where),
                "free_bytes": free_bytes(where),
                "used": python,
                "environment": environment(python),
                "free_port": free_port(),
                "memberships": found,
                "listening": [one["port"] for one in found if listens(one["port"])],
                "jobs": jobs(),
            }
        )
    )


if __name__ == "__main__":
    main()
