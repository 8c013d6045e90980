"""Checks of the software that ranks run with, as it is once torch is imported."""
