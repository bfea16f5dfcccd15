"""tbtui's trials as a verifiers 0.4 plugin, for Prime-RL's environment servers.

A taskset over Harbor task directories and a harness that runs each rollout as a Harbor trial with
Terminus-2 under tbtui's control. See guide/prime-rl-plugin.md. verifiers finds plugins by the
names of top-level modules: `tbtui_harbor` is this one's.

In the servers' common directory (`trials_dir`):

- `trials/TRIAL/` is Harbor's, with the terminal's `recording.cast`;
- `events/TRIAL.jsonl` has what happens in a trial, and `control.jsonl` has commands for trials and
  the run (`files`, which can be imported where verifiers is not installed).
"""
