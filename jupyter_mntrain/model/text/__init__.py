"""Text: suggests spellings, masks secrets, and makes untrusted text safe to show."""
