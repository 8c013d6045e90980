"""Verbs that let a trained model answer: generate, chat, serve."""
