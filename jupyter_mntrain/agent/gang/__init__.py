"""The gang of an attempt's nodes: ended together, restarted together, links tried together."""
