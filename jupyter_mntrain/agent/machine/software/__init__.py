"""Software installed on this machine: jobs' interpreters, versions, and what jobs run in."""
