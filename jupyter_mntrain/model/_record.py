"""Record base classes: frozen, and validated when decoded."""

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Frozen record, validated when decoded.

    Unknown fields, which a newer peer may send, are ignored: agents can be upgraded one by one.
    """


class UserRecord(Record, frozen=True, forbid_unknown_fields=True):
    """Record that people write by hand: a misspelled field is an error."""
