"""The model: stages built from transformers' code, their weights, losses and activations."""
