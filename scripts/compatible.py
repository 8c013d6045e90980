"""Try mntrain in the environment of this interpreter, as ``scripts/compatibility`` does."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from email import message_from_string
from importlib import metadata
from pathlib import Path

import httpx
import nbformat
from nbclient import NotebookClient

BIN = Path(sys.executable).parent
JUPYTER = str(BIN / "jupyter")
TOKEN = "compatibility"
STARTS_S = 120.0
OTHERS = ("jupyterlab", "notebook", "ipykernel", "torch")
JOB = "%mntrain launch quick-check --wait --timeout 600 --set train.steps=3"


def needs(wheel: Path) -> list[str]:
    """What a wheel requires, besides torch and extras."""
    with zipfile.ZipFile(wheel) as opened:
        name = next(one for one in opened.namelist() if one.endswith(".dist-info/METADATA"))
        told = message_from_string(opened.read(name).decode())
    required = told.get_all("Requires-Dist", [])
    return [one for one in required if "extra ==" not in one and not one.startswith("torch>")]


def check_extensions() -> None:
    """JupyterLab and the Jupyter server both have their part.

    Raises:
        RuntimeError: one is missing, or not for this JupyterLab.
    """
    for words in (("labextension", "list"), ("server", "extension", "list")):
        listed = subprocess.run([JUPYTER, *words], capture_output=True, text=True, check=True)
        said = listed.stdout + listed.stderr
        lines = [line for line in said.splitlines() if "mntrain" in line]
        if not any("OK" in line for line in lines):
            raise RuntimeError(f"jupyter {' '.join(words)}: {lines}")


def check_notebook(cells: list[str]) -> None:
    """A kernel executes them without an error.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in cells])
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
    said = json.dumps(notebook)
    for node in ("node1", "node2"):
        if node not in said:
            raise RuntimeError(f"{node} is not shown: {said[-2000:]}")


def check_server() -> None:
    """The Jupyter server answers for us, and has the pages of JupyterLab and Notebook.

    Raises:
        RuntimeError: one of them is not there.
    """
    from scripts.demo import free_port

    port = free_port(["127.0.0.1"])
    command = [JUPYTER, "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
    with (
        tempfile.TemporaryFile() as log,
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as server,
    ):
        try:
            pages = ["/mntrain/v1/status", "/mntrain/v1/nodes", "/lab"]
            pages += ["/tree"] * (importlib.util.find_spec("notebook") is not None)
            with httpx.Client(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"token {TOKEN}"},
                trust_env=False,
                timeout=60,
            ) as client:
                deadline = time.monotonic() + STARTS_S
                while not is_up(client) and time.monotonic() < deadline:
                    time.sleep(0.2)
                for page in pages:
                    client.get(page).raise_for_status()
        except httpx.HTTPError as error:
            log.seek(0)
            raise RuntimeError(f"{error}\n{log.read().decode()[-3000:]}") from error
        finally:
            server.terminate()


def is_up(client: httpx.Client) -> bool:
    try:
        return client.get("/api").is_success
    except httpx.TransportError:
        return False


def versions() -> dict[str, str]:
    """Python's, and those of what is installed of OTHERS."""
    found = {"python": sys.version.split()[0]}
    for name in OTHERS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "–"
    return found


def check() -> list[str]:
    """Everything that this environment can do; what was done.

    Raises:
        Exception: what failed.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from scripts.demo import Node, start_nodes, stop_nodes

    has_torch = importlib.util.find_spec("torch") is not None
    state = Path(tempfile.mkdtemp(prefix="mntrain-compatible-"))
    os.environ |= {"MNTRAIN_CLUSTER": "compatible", "XDG_CONFIG_HOME": str(state / "config")}
    nodes: list[Node] = []
    try:
        check_extensions()
        os.environ["MNTRAIN_AGENTS"] = ",".join(start_nodes(nodes, "compatible", state))
        check_notebook(
            ["%load_ext jupyter_mntrain", "%mntrain nodes", *([JOB] if has_torch else [])]
        )
        check_server()
    finally:
        stop_nodes(nodes)
        shutil.rmtree(state, ignore_errors=True)
    return ["extensions", "agents", "kernel", *(["job"] if has_torch else []), "server"]


def main() -> int:
    if sys.argv[1:2] == ["needs"]:
        print(*needs(Path(sys.argv[2])), sep="\n")
        return 0
    done = check()
    print("| " + " | ".join([*versions().values(), ", ".join(done)]) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
