"""Runs trials on workers and steers them, for tbtui's engine and for Prime-RL's plugin alike."""
