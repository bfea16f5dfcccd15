"""Launches Prime-RL: its file, what it needs on this machine, its processes, and how they end."""
