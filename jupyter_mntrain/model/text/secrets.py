"""Secrets: which values must not be shown, by their names, their forms and their randomness. Pure.

A value that is shown needlessly can be anywhere tomorrow; one that is hidden needlessly costs a
look at the script. Paths, hashes of commits and file names stay readable: people search for them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

HIDDEN = "***"

_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET_WORDS = frozenset(
    {
        *("APIKEY", "AUTH", "AUTHORIZATION", "COOKIE", "CREDENTIAL", "CREDENTIALS", "CREDS"),
        *("KEY", "KEYS", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PAT", "PWD"),
        *("SECRET", "SECRETS", "TOKEN", "TOKENS", "WEBHOOK"),
    }
)
_SECRET_PART = re.compile(
    r"PASSWORD|PASSWD|PGPASS|SSHPASS|SECRET|CREDENTIAL|TOKEN(?!IZ|S)|(API|ACCESS|PRIVATE|AUTH)KEY"
)
"""Within longer words, like ``PGPASSWORD`` and ``HFTOKEN``."""
_PLACES = ("FILE", "PATH", "DIR", "DIRECTORY")
"""Ends of names whose value is where a secret lies."""
_DIRECTORIES = frozenset({"PWD", "OLDPWD"})
"""Every shell sets them."""

_COUNT = re.compile(r"-?\d{1,9}(\.\d+)?|true|false|yes|no|on|off|none|auto|", re.IGNORECASE)
"""Value of a setting such as ``MAX_TOKENS``, ``SORT_KEYS`` or ``PAD_TOKEN``."""
_ALWAYS = re.compile(r"PASS|PWD|SECRET|CRED")
"""A password may be a number."""

_FORMS = re.compile(
    r"""
      \bsk-[\w-]{20,}                                    # OpenAI, Anthropic and others
    | \b[rs]k_(live|test)_\w{16,}                        # Stripe
    | \bhf_[A-Za-z0-9]{20,}                              # Hugging Face
    | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_\w{20,}
    | \bglpat-[\w-]{16,}                                 # GitLab
    | \b(AKIA|ASIA)[0-9A-Z]{16}\b                        # AWS
    | \bAIza[\w-]{30,} | \bya29\.[\w-]{20,}              # Google
    | \bxox[a-z]-[\w-]{10,}                              # Slack
    | \bnvapi-[\w-]{20,}                                 # NVIDIA
    | \bnpm_\w{30,} | \bpypi-[\w-]{20,} | \br8_\w{30,}   # npm, PyPI, Replicate
    | \beyJ[\w-]{8,}\.eyJ[\w-]{8,}(\.[\w-]*)?            # JSON web tokens
    | \bmntrain-[a-z2-7]{50,}                            # invitations of ours
    | (?<=\bBearer\ )[\w.~+/=-]{16,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^\s:/@]*:[^\s/@]+(?=@)                    # user and password of a URL
    | (?<=AccountKey=)[^;\s]+ | (?<=SharedAccessKey=)[^;\s]+   # Azure
    """,
    re.VERBOSE | re.DOTALL,
)

SHORTEST_MASKED = 4

_RUN = re.compile(r"[A-Za-z0-9]{20,}")
_HEXADECIMAL = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{32,}={0,2}")
RUN_BITS, BASE64_BITS = 3.5, 4.5
"""Least entropy per character. Words and paths have less: their letters repeat."""
DIGIT_TURNS = 5
"""Least changes between letters and digits. Words have their digits together."""
TURNS_SHARE = 0.5
"""Or the least share of changes between capitals, small letters and digits: 0.62 in random text,
0.4 in ``CamelCase``."""


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable, or of an option, must not be shown."""
    return (_names_secret(name) and not _is_setting(name, value)) or is_secret_value(value)


def is_secret_value(value: str) -> bool:
    """Whether a value is a secret, whatever its name: by its form, or since it is random."""
    if _FORMS.search(value):
        return True
    if _BASE64.fullmatch(value) and not _HEXADECIMAL.fullmatch(value):
        has_all = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", r"\d"))
        if has_all and _entropy(value) >= BASE64_BITS:
            return True
    return any(map(_is_random, _RUN.findall(value)))


def redacted(text: str) -> str:
    """Text without the secrets that have a known form."""
    return _FORMS.sub(HIDDEN, text)


def masked(text: str, values: Iterable[str] = ()) -> str:
    """Text of the same length, with a ``*`` for each character of a secret.

    Args:
        values: further secrets; short ones are words that occur by themselves.
    """
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST_MASKED:
            text = text.replace(value, "*" * len(value))
    return _FORMS.sub(lambda found: "*" * len(found[0]), text)


def shown(environment: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """Variables as they may be shown.

    Args:
        hidden: names of those that are secret whatever they look like.
    """
    always = frozenset(hidden)
    return {
        name: HIDDEN if name in always or is_secret(name, value) else value
        for name, value in environment.items()
    }


def shown_words(words: Sequence[str]) -> tuple[str, ...]:
    """A command as it may be shown: the values of options, and other words, that are secrets."""
    found, option = [], ""
    for word in words:
        name, equals, value = word.partition("=")
        if word.startswith("-") and equals:
            found.append(f"{name}={HIDDEN}" if is_secret(name, value) else word)
        elif option and not word.startswith("-") and is_secret(option, word):
            found.append(HIDDEN)
        else:
            found.append(HIDDEN if is_secret_value(word) and "\n" not in word else redacted(word))
        option = word if word.startswith("-") and not equals else ""
    return tuple(found)


def has_hidden(words: Iterable[str]) -> bool:
    """Whether a command lacks a secret that :func:`shown_words` has hidden."""
    return any(word == HIDDEN or word.endswith(f"={HIDDEN}") for word in words)


def _names_secret(name: str) -> bool:
    words = [word.upper() for word in _WORDS.findall(name)]
    if name.upper() in _DIRECTORIES or name.upper().endswith(_PLACES):
        return False
    return not _SECRET_WORDS.isdisjoint(words) or _SECRET_PART.search(name.upper()) is not None


def _is_setting(name: str, value: str) -> bool:
    return _COUNT.fullmatch(value) is not None and (value == "" or not _ALWAYS.search(name.upper()))


def _is_random(run: str) -> bool:
    if _HEXADECIMAL.fullmatch(run):
        return False  # the hash of a commit or a file
    pairs = list(itertools.pairwise(run))
    digits = sum(a.isdigit() != b.isdigit() for a, b in pairs)
    kinds = sum((a.isdigit(), a.isupper()) != (b.isdigit(), b.isupper()) for a, b in pairs)
    is_mixed = digits >= DIGIT_TURNS or kinds >= TURNS_SHARE * len(pairs)
    return is_mixed and _entropy(run) >= RUN_BITS


def _entropy(text: str) -> float:
    """Bits per character, by how often each occurs (Shannon 1948)."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
