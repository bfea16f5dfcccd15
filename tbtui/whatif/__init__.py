"""`tbtui whatif`: what one recorded step's gradient would have been under other settings."""
