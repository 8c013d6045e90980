"""Hostile programs that stand in torchrun's place: what a keeper must cope with."""
