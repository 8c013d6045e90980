"""Search: faults drawn by seed from a grammar, with what is true of them known by construction."""
