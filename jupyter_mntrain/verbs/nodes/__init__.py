"""Verbs about nodes and members: nodes, add, forget, measure, invite, members, revoke, driver."""
