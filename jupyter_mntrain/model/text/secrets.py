"""Secrets: recognizes values that must not be shown by name, form and randomness. Pure.

A value that is shown needlessly can be anywhere tomorrow; one that is hidden needlessly costs a
look at the script. Paths, hashes of commits and file names stay readable: people search for them.
"""

from __future__ import annotations

import base64
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    \b(?:
        sk-[\w-]{20,}                                      # OpenAI, Anthropic and others
      | [rs]k_(live|test)_\w{16,}                          # Stripe
      | hf_[A-Za-z0-9]{20,}                                # Hugging Face
      | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_\w{20,}
      | glpat-[\w-]{16,}                                   # GitLab
      | (AKIA|ASIA)[0-9A-Z]{16}\b                          # AWS
      | AIza[\w-]{30,} | ya29\.[\w-]{20,}                  # Google
      | xox[a-z]-[\w-]{10,}                                # Slack
      | nvapi-[\w-]{20,}                                   # NVIDIA
      | npm_\w{30,} | pypi-[\w-]{20,} | r8_\w{30,}         # npm, PyPI, Replicate
      | eyJ[\w-]{8,}\.eyJ[\w-]{8,}(\.[\w-]*)?              # JSON web tokens
      | SG\.[\w-]{16,}\.[\w-]{16,} | key-[0-9a-f]{32}\b    # SendGrid, Mailgun
      | (AC|SK)[0-9a-f]{32}\b                              # Twilio
      | hvs\.[\w-]{20,} | dapi[0-9a-f]{32}\b               # Vault, Databricks
      | dop_v1_[0-9a-f]{40,} | dckr_pat_[\w-]{20,}         # DigitalOcean, Docker
      | gl(sa|c)_\w{20,}={0,2} | lin_api_\w{20,}           # Grafana, Linear
      | gsk_\w{20,} | xai-\w{20,} | shp(at|ss|ca)_\w{16,}  # Groq, xAI, Shopify
      | AGE-SECRET-KEY-1[0-9A-Z]{50,}
      | \d{8,10}:AA[\w-]{32,}                              # Telegram
      | mntrain-[a-z2-7]{50,}                              # invitations of ours
    )
    # Who has a webhook's address may send there.
    | (?<=\bhooks\.slack\.com/)[\w/-]{20,}
    | (?<=/api/webhooks/)\d{8,}/[\w-]{20,}                 # Discord
    | (?<=\.webhook\.office\.com/)[\w/@-]{20,}             # Teams
    | (?<=\bBearer\ )[\w.~+/=-]{16,}
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?<=://)[^\s:/@]*:[^\s/@]+(?=@)                      # user and password of a URL
    | (?<=AccountKey=)[^;\s]+ | (?<=SharedAccessKey=)[^;\s]+   # Azure
    # Signatures of addresses that anybody may read: Azure's, S3's and Google's.
    | (?<=[?&;]sig=)[^&;\s"']+ | (?<=-Signature=)[^&\s"']+
    """,
    re.VERBOSE | re.DOTALL,
)

_NAMED = re.compile(
    r"""
    (?P<name>KEY|TOKEN|PASS(?:WORD|WD|PHRASE)?|PGPASS|SSHPASS|PWD|SECRET|CREDENTIALS?|CREDS?
        |AUTH|PAT|COOKIE|WEBHOOK)
    (?:
        ["'\\\]]{0,4}[\ \t]{0,3}(?P<sign>:=|=>|=(?!=)|:)[\ \t]{0,3}
      | (?P<space>[\ \t]+)
    )
    (?:
        b?\\?["'](?P<quoted>[^"'\\\n]{1,4096})
      | (?!(?<=\s)\w+=[^=\s])(?P<bare>[^\s,;"'<>()\[\]{}&]{1,4096})   # of "A= B=1", A has none
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A name that may be a secret's, and what stands behind it."""
_NAME_BEFORE = re.compile(r"[\w.-]*\Z", re.ASCII)
LONGEST_NAME = 64
_HEADERS = re.compile(
    r"""
      \bAuthorization["']?[\ \t]*[:=][\ \t]*["']?(?:[A-Za-z][\w-]*\ +)?([^\s"',]{6,})
    | \b(?:Set-)?Cookie["']?:\ *["']?([\w.-]+=[^\n"']+)
    | \blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(\S+)                 # netrc
    | (?<!\S)[\w.*-]+:(?:\d{2,5}|\*):[^:\s]+:[^:\s]+:([^:\s]+)$          # pgpass
    | \bcurl\b[^\n]{0,500}?\s(?:-u|--user)[\ =]?["']?([^\s"':]+:[^\s"']+)
    | \bsshpass\ +-p\ *["']?([^\s"']+)
    | \bwandb\ login\ (?:--\S+\ )*([0-9a-f]{40})\b
    | [?&](?:token|key|auth|code|access_token)=([^&\s"'<>#]{8,})
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""Lines of a fixed form; the group that matches is the secret."""
_BASIC = re.compile(r"\bBasic\ ([A-Za-z0-9+/]{8,}={0,2})")

_STRONG = frozenset({"PASSWORD", "PASSWD", "PASSPHRASE", "PGPASS", "SSHPASS", "SECRET", "WEBHOOK"})
"""Whatever stands behind such a name is hidden, unless it says that there is none."""
_OF_KEYS = frozenset(
    {
        *(
            "API",
            "ACCESS",
            "ACCOUNT",
            "AUTH",
            "CLIENT",
            "DEPLOY",
            "ENCRYPTION",
            "LICENSE",
            "MASTER",
        ),
        *("PRIVATE", "SECRET", "SERVICE", "SHARED", "SIGNING", "STORAGE"),
    }
)
"""Words before ``KEY`` that make it a secret's; most keys are those of a table."""
_OF_TOKENIZERS = frozenset(
    {
        *(
            "ADDITIONAL",
            "AUDIO",
            "BOS",
            "BOI",
            "CLS",
            "DECODER",
            "END",
            "EOI",
            "EOS",
            "EOT",
            "FIRST",
        ),
        *("FORCED", "IMAGE", "LAST", "MASK", "NEW", "NEXT", "NUM", "PAD", "PER", "PREFIX", "SEP"),
        *("SPECIAL", "START", "STOP", "SUFFIX", "TEXT", "UNK", "VIDEO", "VISION"),
    }
)
"""Words before ``TOKEN`` that make it one of a vocabulary."""
_PASSES = frozenset({"FORWARD", "BACKWARD", "FIRST", "SECOND", "LAST", "EACH", "SINGLE", "TEST"})
_NO_VALUE = re.compile(
    r"""
      none|null|nil|true|false|yes|no|on|off|auto|str|string|bytes|int|bool|optional|default
    | not|is|was|has|are|must|missing|required|empty|unset|set|invalid|wrong|incorrect|hidden
    | \*+|\.{2,}|-+|x{3,}|redacted|masked
    | \$.*|%\w*%|~?/.*|\.\.?/.*                 # a variable, a path
    | [A-Za-z_]\w*(\.[A-Za-z_]\w*)+            # an attribute: args.password
    | \W*                                     # signs alone
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Values that are not secrets, whatever their name is."""
_PROSE = re.compile(r"[ \t]+[a-z]")
_TOKEN_LIKE = re.compile(r"[\w+/=.~:%-]{8,}", re.ASCII)
JUDGED_CHARACTERS = 256
"""Of what stands behind a name: a script may print a line of nothing but names."""

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


def is_switch(value: str) -> bool:
    """Whether a value is a word like ``true`` or ``none``, which cannot be a secret."""
    return value.isalpha() and _COUNT.fullmatch(value) is not None


def is_secret_value(value: str) -> bool:
    """Whether a value is a secret by its form or randomness, whatever its name."""
    return next(_spans(value), None) is not None or _is_known_or_random(value)


def _is_known_or_random(value: str) -> bool:
    if _FORMS.search(value):
        return True
    if _BASE64.fullmatch(value) and not _HEXADECIMAL.fullmatch(value):
        has_all = all(re.search(kind, value) for kind in ("[a-z]", "[A-Z]", r"\d"))
        if has_all and _entropy(value) >= BASE64_BITS:
            return True
    return any(map(_is_random, _RUN.findall(value)))


def redacted(text: str) -> str:
    """Return the text without secrets that a form or a name, like ``password=…``, gives away."""
    return _replaced(text, lambda _: HIDDEN)


def masked(text: str, values: Iterable[str] = ()) -> str:
    """Replace each character of a secret by ``*``.

    Args:
        values: further secrets; short ones are words that occur by themselves.
    """
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST_MASKED:
            text = text.replace(value, "*" * len(value))
    return _replaced(text, lambda found: "*" * len(found))


def shown(environment: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """Return variables with secret values hidden.

    Args:
        hidden: names of those that are secret whatever they look like.
    """
    always = frozenset(hidden)
    return {
        name: HIDDEN if name in always or is_secret(name, value) else value
        for name, value in environment.items()
    }


def shown_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command with secret option values and other secret words hidden."""
    return tuple(shown for shown, _ in _words_seen(words))


def secret_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the secrets that :func:`shown_words` hides in a command."""
    return tuple(secret for _, secrets in _words_seen(words) for secret in secrets)


def _words_seen(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each word with its secrets hidden, and these secrets."""
    option = ""
    for word in words:
        name, equals, value = word.partition("=")
        is_given = bool(option) and not word.startswith("-") and is_secret(option, word)
        if word.startswith("-") and equals:
            yield (f"{name}={HIDDEN}", (value,)) if is_secret(name, value) else (word, ())
        elif is_given or (is_secret_value(word) and "\n" not in word):
            yield HIDDEN, (word, *_found(word))
        else:
            yield redacted(word), _found(word)
        option = word if word.startswith("-") and not equals else ""


def has_hidden(words: Iterable[str]) -> bool:
    """Whether a command has a placeholder of :func:`shown_words` in place of a secret."""
    return any(word == HIDDEN or word.endswith(f"={HIDDEN}") for word in words)


def _found(text: str) -> list[str]:
    return [text[begin:end] for begin, end in _spans(text)]


def _replaced(text: str, by: Callable[[str], str]) -> str:
    """Replace every secret that is found in a text."""
    spans = sorted(_spans(text))
    if not spans:
        return text
    parts, done = [], 0
    for begin, end in spans:
        if end <= done:
            continue
        first = max(begin, done)
        parts += [text[done:first], by(text[first:end])]
        done = end
    return "".join([*parts, text[done:]])


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of secrets in a text, which may overlap."""
    for found in _FORMS.finditer(text):
        yield found.span()
    for found in _HEADERS.finditer(text):
        yield found.span(found.lastindex or 0)
    for found in _BASIC.finditer(text):
        if _is_user_and_password(found[1]):
            yield found.span(1)
    position = 0
    while (named := _NAMED.search(text, position)) is not None:
        group = "quoted" if named["quoted"] else "bare"
        if _is_shown_secret(text, named, named[group]):
            yield named.span(group)
            position = named.end()
        else:
            position = named.end("name")  # its value may be a name itself


def _is_shown_secret(text: str, named: re.Match[str], value: str) -> bool:
    """Whether the value after a name that may denote a secret is one."""
    before = text[max(0, named.start() - LONGEST_NAME) : named.start()]
    prefix = _NAME_BEFORE.search(before)
    name = (prefix[0] if prefix else "") + named["name"]
    if named["space"] and not name.startswith("-"):
        return False
    words = [word.upper() for word in _WORDS.findall(name)]
    last = named["name"].upper()
    if words[-1:] != [last]:
        if not _SECRET_PART.search(name.upper()):
            return False  # monkey=
        words[-1:] = [words[-1].removesuffix(last), last]
    is_bare = named["quoted"] is None
    if is_bare:
        value = value.rstrip(".:!?")
    value = value[:JUDGED_CHARACTERS]
    if len(value) < SHORTEST_MASKED or _NO_VALUE.fullmatch(value) or value.upper() in name.upper():
        return False
    end = named.end("bare") if is_bare else 0
    if is_bare and text[end : end + 1] in ("(", "["):
        return False  # a call: password=getpass()
    if is_bare and named["sign"] == ":" and value.isalpha() and _PROSE.match(text, end):
        return False  # password: incorrect for user
    return _is_strong(words, name, value) or _is_credential(value)


def _is_strong(words: Sequence[str], name: str, value: str) -> bool:
    """Whether the name alone makes a value a secret."""
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    match last:
        case "PASS":
            return before not in _PASSES and (bool(before) or not _COUNT.fullmatch(value))
        case "PWD":
            return name.upper() != "OLDPWD"
        case "KEY":
            return before in _OF_KEYS and not _COUNT.fullmatch(value)
        case "TOKEN":
            is_setting = not before or before in _OF_TOKENIZERS or _COUNT.fullmatch(value)
            return not is_setting
        case "AUTH":
            return ":" in value.strip(":")
        case "PAT":
            return bool(before) and name.isupper()
        case _:
            return last in _STRONG


def _is_credential(value: str) -> bool:
    """Whether a value looks like a key: long, with mixed letters and digits, not a path or name."""
    if "=" in value.rstrip("=") or not _TOKEN_LIKE.fullmatch(value):
        return False  # a name with a value of its own, or a text
    if _is_known_or_random(value) or _is_user_and_password(value):
        return True
    is_mixed = re.search(r"\d", value) and re.search("[A-Za-z]", value)
    return bool(is_mixed) and value.isalnum() and not value.lower().startswith("0x")


def _is_user_and_password(value: str) -> bool:
    """Whether a value is ``user:password`` in base64."""
    try:
        told = base64.b64decode(value, validate=True)
    except ValueError:
        return False
    return b":" in told and told.isascii() and told.decode().isprintable()


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
    """Return the bits per character by their frequencies (Shannon 1948)."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)
