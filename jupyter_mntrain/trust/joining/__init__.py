"""Joining a cluster: the token, the proof, the messages, and the joining side's server.

Read in this order: :mod:`token`, :mod:`proof`, :mod:`messages`, :mod:`candidate`,
:mod:`join_server`. The driver's side is :mod:`jupyter_mntrain.cluster.admission`.
"""
