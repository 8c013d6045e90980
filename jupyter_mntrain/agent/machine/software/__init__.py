"""What is installed on this machine: interpreters of jobs, versions, and what jobs run in."""
