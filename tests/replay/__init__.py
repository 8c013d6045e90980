"""Nodes that play a large job from memory: the agents' protocol, and no rank behind it."""
