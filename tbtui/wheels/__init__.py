"""Python packages that boxes without a network install from: what tasks ask for, fetched once."""
