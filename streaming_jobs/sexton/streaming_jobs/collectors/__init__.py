"""Collectors: they list, find garbage, report it, and ask for its deletion as everybody else does.

A collector deletes nothing itself. Each has a room of its own; `registry` names them all.
"""
