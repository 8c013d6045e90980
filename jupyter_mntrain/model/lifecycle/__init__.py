"""State changes of jobs: transitions, roll-up, restarts and queueing. Pure."""
