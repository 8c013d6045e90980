"""The daemon: assembles and announces a node, and applies what its owner offers."""
