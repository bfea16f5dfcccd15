"""Model APIs over HTTP: OpenAI's Chat Completions and Responses, and Anthropic's Messages."""
