"""A long job in a few thousand rows: blocks of steps, on the wire and in a driver's memory."""
