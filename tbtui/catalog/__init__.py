"""Tasks: finding them, checking them, and splitting them into training and held-out."""
