"""The daemon itself: how a node is put together and announced, and what its owner offers."""
