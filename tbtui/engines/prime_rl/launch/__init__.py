"""Launching Prime-RL: its file, what it needs here, its processes, and how they end.

See README.md beside this file.
"""
