"""Forks torchrun and ranks from a process that has imported torch, as multiprocessing's forkserver
does: importing it takes each of them seconds.
"""
