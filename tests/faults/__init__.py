"""Faults injected into real trials, and a check that none of them is ever scored."""
