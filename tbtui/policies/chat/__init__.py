"""Chat formats of real models: messages to exact tokens, and completions back to text."""
