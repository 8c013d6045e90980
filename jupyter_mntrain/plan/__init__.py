"""Planning: chooses participants, interfaces and placements. Pure."""
