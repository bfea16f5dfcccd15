"""Double-entry bookkeeping in whole cents."""
