"""Command line: the one argparse dialect, and the command line of the agent."""
