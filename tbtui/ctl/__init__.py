"""`tbtui ctl NOUN VERB`: looks at runs and steers live ones, from scripts and by hand.

What is looked at comes from the journal, as on every screen. A change goes to the run over its
control socket (`tbtui.engines.control`), which journals it with who asked and why; what came of it
is read from the journal again.

- Reads without a selector list everything.
- A change has exactly one target. What ends something names it: `run stop` has no default.
- All of them are idempotent: what is so already is done.
- What the model or the task's programs wrote is withheld unless `--content` is given, so that
  nobody who reads a list is talked to by an agent.

Exit status: 0 done, 1 refused or not possible now, 2 bad input, 130 interrupted.
"""
