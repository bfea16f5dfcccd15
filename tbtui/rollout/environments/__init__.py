"""The sandbox: a Harbor environment for Linux that needs no container engine.

Nothing is imported here: the box's own process starts through this package and must stay lean.
"""
