"""A small server that speaks the Tinker protocol around the embedded policy, for tests."""
