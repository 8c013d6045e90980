"""The stand-in cluster: scripted nodes, jobs and journals for tests that need no real agent.

`agent.py` serves the agents' protocol over real HTTPS and `faults.py` makes its routes fail;
`replay.py` serves a large job from it to the page and to benchmarks; `cluster.py` gives verbs the
same records without a network. Records come from `nodes.py`, `jobs.py` and
`pipeline.py`; `training.py` makes histories of them.
"""
