"""Tables for terminal and notebook alike, out of rich. Pure: records in, renderables out."""
