"""Doctor: finds what would keep a cluster from training, before a job starts. Pure; no I/O.

Each check is one small class with an id, what it looks at, and for what it finds a cause and a
fix. :data:`~jupyter_mntrain.doctor.every.EVERY` lists them; ``docs/doctor.md`` is made from their
tests.
"""
