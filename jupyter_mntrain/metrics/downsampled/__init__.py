"""A long job downsampled to a few thousand rows: blocks of steps, on the wire and in memory."""
