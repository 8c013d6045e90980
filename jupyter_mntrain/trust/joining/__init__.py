"""Joining a cluster: the token, the proof, the messages, and the side that waits to be admitted.

In order: :mod:`token`, :mod:`proof`, :mod:`messages`, :mod:`candidate`, :mod:`join_server`. The
driver's side, which dials and admits, is :mod:`jupyter_mntrain.cluster.admission`.
"""
