"""The lab of the end-to-end tests, for these, too."""

from tests.e2e.conftest import lab, mntrain

__all__ = ["lab", "mntrain"]
