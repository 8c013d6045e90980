"""Tests of what one kind of evidence says."""
