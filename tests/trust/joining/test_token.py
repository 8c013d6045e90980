"""Invitation token, and the proofs made with its secret."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_mntrain.model.errors import TrustError
from jupyter_mntrain.trust.certificates import Role
from jupyter_mntrain.trust.joining.token import (
    NONCE_BYTES,
    PREFIX,
    Conversation,
    Token,
    new_nonce,
    new_token,
    prove,
    read_token,
    write_token,
)

FINGERPRINT = bytes(range(32))
SECRETS = st.binary(min_size=16, max_size=16)
ROLES: st.SearchStrategy[Role] = st.sampled_from(["node", "driver"])


@given(ROLES, SECRETS, SECRETS, st.integers(0, 2**40))
def test_a_token_comes_back_as_it_was_written(
    role: Role, secret: bytes, authority: bytes, expires_s: int
) -> None:
    token = Token(role=role, secret=secret, authority=authority, expires_s=expires_s)
    text = write_token(token)
    assert read_token(text) == token
    assert read_token(f"  {text[:20]}\n   {text[20:].upper()} ") == token
    assert text.isascii()
    assert len(text.split()) == 1


@given(st.data())
def test_one_wrong_letter_is_noticed(data: st.DataObject) -> None:
    text = write_token(new_token("node", FINGERPRINT, 1e9))
    place = data.draw(st.integers(len(PREFIX), len(text) - 1))
    letter = data.draw(st.sampled_from("abcdefghijklmnopqrstuvwxyz234567"))
    wrong = text[:place] + letter + text[place + 1 :]
    if wrong == text:
        return
    with contextlib.suppress(TrustError):
        # The last letter's lowest bits are padding: that is no other token.
        assert read_token(wrong) == read_token(text)
        assert place == len(text) - 1


@given(st.text())
def test_any_text_is_a_token_or_one_clean_line(text: str) -> None:
    for given_text in (text, PREFIX + text):
        with pytest.raises(TrustError) as caught:
            read_token(given_text)
        assert "\n" not in str(caught.value)


def test_two_tokens_have_nothing_in_common_but_the_cluster() -> None:
    one, other = (new_token("node", FINGERPRINT, 1e9) for _ in range(2))
    assert one.secret != other.secret
    assert one.id != other.id
    assert one.is_of(FINGERPRINT)
    assert other.is_of(FINGERPRINT)
    assert not one.is_of(FINGERPRINT[::-1])
    assert one.secret.hex() not in write_token(one)


def test_a_proof_is_good_for_one_side_one_certificate_and_one_conversation() -> None:
    secret = b"s" * 16
    seen = Conversation(b"h" * 32, new_nonce(), new_nonce())
    proof = prove(secret, "joining", seen, b"csr")
    assert proof == prove(secret, "joining", seen, b"csr")
    assert proof != prove(b"t" * 16, "joining", seen, b"csr")
    assert proof != prove(secret, "inviting", seen, b"csr")
    # Somebody in between has a certificate of his own.
    assert proof != prove(secret, "joining", seen._replace(certificate_hash=b"i" * 32), b"csr")
    turned = Conversation(b"h" * 32, seen.applied, seen.greeted)
    assert proof != prove(secret, "joining", turned, b"csr")
    assert proof != prove(secret, "joining", seen, b"another csr")


@given(st.lists(st.binary(max_size=4), min_size=2, max_size=2))
def test_parts_cannot_be_shifted_into_each_other(parts: list[bytes]) -> None:
    first, second = parts
    nonce = bytes(NONCE_BYTES)

    def proof(certificate_hash: bytes, content: bytes) -> bytes:
        return prove(b"s", "joining", Conversation(certificate_hash, nonce, nonce), content)

    if first:
        assert proof(first, second) != proof(first[:-1], first[-1:] + second)
