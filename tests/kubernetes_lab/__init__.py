"""A small Kubernetes on simulated hosts: an API server that takes only valid objects, a quota that
admits and evicts, and nodes that run the commands of pods as processes.

What it cannot show: images, webhooks, rules in CEL, pod networks, network policies at work, GPUs.
"""
