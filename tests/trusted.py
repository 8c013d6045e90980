"""One authority for all clusters of the tests: real certificates, made in milliseconds."""

from __future__ import annotations

import atexit
import os
import shutil
import ssl
import tempfile
import time
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import msgspec

from jupyter_mntrain.agent.membership import state as membership
from jupyter_mntrain.agent.membership.state import Settings
from jupyter_mntrain.agent.membership.state_directory import load_node_id
from jupyter_mntrain.model.ids import NodeId
from jupyter_mntrain.trust.authority import CERTIFICATE_LIFETIME, Authority
from jupyter_mntrain.trust.certificates import (
    Subject,
    key_pem,
    load_certificate,
    load_key,
    new_key,
    pem_of,
    request,
)
from jupyter_mntrain.trust.credentials import Credentials, write_private
from jupyter_mntrain.trust.registrar import Register, RegisteredMember

CLUSTERS: tuple[str, ...] = ("default", "test", "lab", "ui", "bad", "books", "lessons")
CLUSTERS += ("fuzz", "replay", "second", "served", "ours", "tuned")
"""Names that tests use for it."""

PASSED_ON = "MNTRAIN_TEST_AUTHORITY"
"""Where its key lies, for programs that tests start and that play agents."""

DRIVER = Subject(role="driver", name="a-test")


@cache
def authority() -> Authority:
    passed = os.environ.get(PASSED_ON)
    if passed:
        path = Path(passed)
        key = load_key((path / "authority.key").read_bytes())
        return Authority(key, load_certificate((path / "authority.pem").read_text()))
    made = Authority.make("test")
    os.environ[PASSED_ON] = str(pass_on(made))
    return made


def pass_on(made: Authority) -> Path:
    """Where its key lies for as long as this process lives."""
    path = Path(tempfile.mkdtemp(prefix="mntrain-test-authority-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    write_private(path / "authority.key", key_pem(made.key).decode())
    write_private(path / "authority.pem", pem_of(made.certificate))
    return path


def make_credentials(
    directory: Path,
    subject: Subject,
    *,
    of: Authority | None = None,
    lifetime: timedelta = CERTIFICATE_LIFETIME,
    now: datetime | None = None,
) -> Credentials:
    """Of a member, as it gets them when it joins."""
    signing, key = of or authority(), new_key()
    certificate = signing.issue(request(key, subject), subject, lifetime=lifetime, now=now)
    return Credentials.write(
        directory,
        key,
        certificate=pem_of(certificate),
        authority=pem_of(signing.certificate),
        revocations=pem_of(signing.revocations((), 1)),
    )


def become_driver(directory: Path, *, of: Authority | None = None) -> None:
    """What making a cluster leaves in its directory, for an authority that is there already."""
    signing = of or authority()
    directory.mkdir(parents=True, exist_ok=True)
    credentials = make_credentials(directory, DRIVER, of=signing)
    own = RegisteredMember(
        role="driver",
        name=DRIVER.name,
        title=DRIVER.name,
        certificate=pem_of(credentials.certificate),
        joined_s=time.time(),
    )
    write_private(directory / "authority.key", key_pem(signing.key).decode())
    write_private(
        directory / "register.json", msgspec.json.encode(Register(members=(own,))).decode()
    )


def install_drivers(configuration: Path, *, of: Authority | None = None) -> None:
    """Make whoever has this configuration directory a driver of every cluster of tests."""
    directory = configuration / "mntrain" / "clusters"
    default = directory / CLUSTERS[0]
    if of is None:
        default.mkdir(parents=True)
        for name, content in _driver_files().items():
            with open(default / name, "xb", opener=_open_private) as file:
                file.write(content)
    else:
        become_driver(default, of=of)
    for name in CLUSTERS[1:]:
        # One identity under many names; whoever changes one makes a cluster of its own.
        (directory / name).symlink_to(CLUSTERS[0])


@cache
def _driver_files() -> dict[str, bytes]:
    """To copy: writing them durably again would take longer than most tests do."""
    with tempfile.TemporaryDirectory() as path:
        become_driver(Path(path))
        return {file.name: file.read_bytes() for file in Path(path).iterdir()}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def join(state: Path, settings: Settings, cluster: str) -> NodeId:
    """What joining leaves in a node's state directory."""
    state.mkdir(parents=True, exist_ok=True)
    node_id = load_node_id(state)
    if membership.find(state) is None:
        make_credentials(state, Subject(role="node", name=node_id))
        membership.keep(state, cluster, settings)
    return node_id


@cache
def driver_context() -> ssl.SSLContext:
    """Shows a driver's certificate; checks the cluster's, and the node's name only if asked to."""
    with tempfile.TemporaryDirectory() as path:
        return make_credentials(Path(path), DRIVER).unnamed_client
