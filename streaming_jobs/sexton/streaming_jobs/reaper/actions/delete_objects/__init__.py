"""Deleting keys by name: what is sent for each, phase by phase, and what became of them."""
