"""A run in browsers, to look at only.

Every tab has a process of its own (`viewer`), which reads the run's journal as `tbtui replay` does
and draws the app's screens; the server (`server`, `session`) hands what it draws to the page. The
trainer's process and its control socket are never touched.
"""
