"""Attacks on tbtui: each is tried for real, and what must not happen is looked for.

`python -m tests.attacks [NAME...]` tries those of the modules named (default: all) and prints, for
each module, how many were tried and how many held.
"""
