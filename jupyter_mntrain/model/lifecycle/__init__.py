"""Job lifecycle: state transitions, roll-up, restarts and queue order. Pure."""
