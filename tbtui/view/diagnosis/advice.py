"""What to do where trials end in one way: for the diagnosis, and for what a run needs a person for.

By itself, because the rules build on those needs.
"""

from __future__ import annotations

from tbtui.outcomes import Outcome

ADVICE: dict[Outcome, str] = {
    Outcome.CONTEXT_OVERFLOW: "raise context_limit",
    Outcome.OUTPUT_TRUNCATED: "raise max_tokens",
    Outcome.PARSE_ERROR: "raise max_turns, or train longer before judging",
    Outcome.AGENT_TIMEOUT: "raise max_turns or trial_timeout_sec",
    Outcome.VERIFIER_ERROR: "run tbtui tasks try on it with --oracle",
    Outcome.SANDBOX_LOST: "lower n_parallel_envs",
    Outcome.SETUP_ERROR: "run tbtui doctor",
    Outcome.PROVIDER_ERROR: "look at the model's server",
    Outcome.AGENT_ERROR: "read a trial's trial.log",
}
"""In a few words; nothing for an outcome that is the policy's own work, or a person's."""
