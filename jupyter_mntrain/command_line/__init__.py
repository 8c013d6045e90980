"""Command line: the argparse dialect that all commands share, and the arguments of the agent."""
