"""``invite``, ``members``, ``revoke`` and ``driver``, as typed, on real clusters."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from jupyter_mntrain import __version__
from jupyter_mntrain.cli import main
from jupyter_mntrain.model.errors import SpecError, TrustError
from jupyter_mntrain.trust.certificates import Subject, new_key, request
from jupyter_mntrain.trust.driver_membership import DriverMembership, clusters_directory
from jupyter_mntrain.trust.joining.messages import Application
from jupyter_mntrain.trust.joining.token import PREFIX, Token, new_nonce, read_token
from jupyter_mntrain.trust.registrar import IssuedInvitation
from jupyter_mntrain.verbs.verb import Context
from tests.agent.live import free_port
from tests.waiting import until
from tests.wording import says, wording


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setattr("jupyter_mntrain.cluster.view.node_search.DISCOVERY_S", 0.0)

    def run(*words: str):
        code = main(["--cluster", "mine", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def identity() -> DriverMembership:
    return DriverMembership.make("mine")


def admit(identity: DriverMembership, token: Token, name: str) -> tuple[IssuedInvitation, Subject]:
    subject = Subject(role=token.role, name=name if token.role == "driver" else "ab" * 16)
    asked = Application(
        nonce=new_nonce(), subject=subject, name=name, request=request(new_key(), subject)
    )
    invite = next(one for one in identity.authorized().invites() if one.token == token)
    assert identity.authorized().admit(invite, asked).refusal is None
    return invite, subject


def join(identity: DriverMembership, token: Token, name: str) -> None:
    identity.authorized().note_joined(*admit(identity, token, name))


def test_the_first_invitation_makes_the_cluster_and_prints_one_line(run):
    code, out, _ = run("invite", "--no-wait", "--uses", "3", "--expires", "2h")
    assert code == 0
    (line,) = (one for one in out.splitlines() if PREFIX in one)
    assert line.endswith("mntrain agent join --service")
    for needed in ("8765", __version__, "mntrain install"):
        assert needed in out
    token = read_token(next(word for word in line.split() if word.startswith(PREFIX)))
    assert token.role == "node"
    identity = DriverMembership.find("mine")
    assert identity is not None
    (invite,) = identity.authorized().invites()
    assert (invite.token, invite.uses) == (token, 3)
    assert "Valid for 3 nodes, for 2 h" in " ".join(out.replace("\xa0", " ").split())
    assert (clusters_directory() / "mine" / "authority.key").stat().st_mode & 0o777 == 0o600


def test_as_data_it_is_the_token(run):
    code, out, err = run("--json", "driver", "invite")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["role"] == "driver"
    assert read_token(found["token"]).role == "driver"
    assert found["expires_s"] == read_token(found["token"]).expires_s


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (["invite", "--uses", "0"], SpecError, "--uses: '0' is not a whole number from 1 to 1000"),
        (["invite", "--uses", "many"], SpecError, "many"),
        (["invite", "--expires", "soon"], SpecError, "30m, 2h or 7d"),
        (["invite", "--expires", "0s"], SpecError, "expire immediately"),
        (["invite", "--replace", "kim"], TrustError, "no cluster named 'mine'"),
        (["members"], TrustError, "no cluster named 'mine'"),
        (["revoke", "kim"], TrustError, "no cluster named 'mine'"),
        (["driver"], SpecError, "use one of invite, join, revoke"),
        (["driver", "invite", "kim"], SpecError, "is not expected here"),
        (["driver", "join"], SpecError, "no token was given"),
        (["driver", "revoke"], SpecError, "NAME"),
        (["driver", "join", "mntrain-abc"], SpecError, "do not put a token on the command line"),
        (["driver", "join", "--token-file", "/nowhere"], SpecError, "/nowhere cannot be read"),
    ],
)
def test_what_cannot_be_is_one_line(run, monkeypatch, words, kind, told):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, out, err = run(*words)
    assert (code, out) == (kind.exit_code, "")
    assert says(told, err)
    assert len(err.splitlines()) == 1


def test_nodes_of_a_cluster_that_is_not_there_are_an_error_that_names_those_that_are(
    run, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    DriverMembership.make("mine")
    assert run("nodes")[0] == 0
    code = main(["nodes", "--cluster", "mien", "--agent", "127.0.0.2", "--agent", "127.0.0.3"])
    out, err = capsys.readouterr()
    assert (code, out) == (TrustError.exit_code, "")
    assert says("no cluster named 'mien'", err)
    assert says("use --cluster mine; ", err)
    assert len(err.splitlines()) == 1


def test_each_role_is_told_where_its_token_is_of_use(run, identity, monkeypatch):
    from jupyter_mntrain.agent.options import parse_options
    from jupyter_mntrain.trust.joining.token import write_token

    node, driver = (write_token(identity.authorized().invite(role)) for role in ("node", "driver"))
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{node}\n{driver}\n"))
    code, _, err = run("driver", "join")
    assert code == SpecError.exit_code
    assert says("use it with mntrain agent join", err)
    with pytest.raises(SpecError, match=wording("use it with mntrain driver join")):
        parse_options(["join"])


def test_members_are_shown_and_revoked_by_name(run, identity):
    join(identity, identity.authorized().invite(), "wopr")
    join(identity, identity.authorized().invite("driver"), "kim")
    code, out, _ = run("members")
    assert code == 0
    for words in ("(this driver)", "wopr", "kim", "until 20"):
        assert words in out
    code, out, _ = run("driver", "revoke", "kim")
    assert code == 0
    assert "kim is revoked" in out
    code, out, _ = run("--json", "members")
    found = {one["member"]: one for one in json.loads(out)}
    assert found["kim"]["revoked_s"]
    assert found["wopr"]["revoked_s"] is None
    code, _, err = run("revoke", "hal")
    assert code == SpecError.exit_code
    assert "wopr" in err


def test_it_stays_until_who_was_admitted_has_its_certificate(run, identity, monkeypatch):
    admitted: list[tuple[IssuedInvitation, Subject]] = []
    happened: list[str] = []

    def meanwhile(seconds: float) -> None:
        if not happened:
            admitted.append(admit(identity, identity.authorized().invites()[-1].token, "wopr"))
            happened.append("admitted")
        elif len(happened) < 3:
            happened.append("still there")
        else:
            identity.authorized().note_joined(*admitted[0])

    monkeypatch.setattr("jupyter_mntrain.verbs.verb.Context", partial(Context, sleep=meanwhile))
    code, out, _ = run("invite")
    assert code == 0
    assert "wopr joined" in out
    assert happened == ["admitted", "still there", "still there"]


@pytest.mark.slow
def test_at_a_terminal_it_stays_until_everybody_has_joined(tmp_path: Path, loopback_addresses):
    mntrain = str(Path(sys.executable).with_name("mntrain"))
    log = tmp_path / "invite.log"
    with log.open("wb") as out:
        waits = subprocess.Popen(
            [mntrain, "--cluster", "mine", "invite", "--uses", "2"], stdout=out, stderr=out
        )
    agents = []
    try:
        until(lambda: PREFIX in log.read_text(), "the token")
        token = next(word for word in log.read_text().split() if word.startswith(PREFIX))
        for name in ("wopr", "muthur"):
            address = next(loopback_addresses)
            command = [mntrain, "agent", "join", "--name", name, "--listen", address]
            command += ["--port", str(free_port(address)), "--state-dir", str(tmp_path / name)]
            agents.append(subprocess.Popen([*command, "--no-run"], stdin=subprocess.PIPE))
            agents[-1].communicate(token.encode())
        assert waits.wait(60) == 0
        for name in ("wopr", "muthur"):
            assert f"✓ {name} joined" in log.read_text()
    finally:
        for process in (waits, *agents):
            process.terminate()
            process.wait(20)
