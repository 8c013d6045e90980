"""Tables for terminal and notebook, made with rich. Pure: records in, renderables out."""
