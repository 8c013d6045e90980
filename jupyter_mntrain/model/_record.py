"""Record bases: frozen, and checked where data comes in."""

import msgspec


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Frozen and validated at the boundary.

    A newer peer may send fields an older one does not know: they are ignored, which is what
    lets agents be upgraded one by one.
    """


class UserRecord(Record, frozen=True, forbid_unknown_fields=True):
    """A record that people write by hand: a misspelled field is an error, never ignored."""
