"""The daemon itself: how a node is put together, announced and lent."""
