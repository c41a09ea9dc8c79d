"""Programs on chat APIs: OpenAI's and those like it, Anthropic's, and what LiteLLM reaches.

An adapter (`openai`, `anthropic`, `litellm`) makes one call of a conversation and tells what comes (`api`); over HTTP
it has a line that retries (`line`, `refusals`). A session (`session`) makes such calls of a program's nodes
(`caller`), and saves calls where the API wrote past what one was made for (`turn`, `ahead`).
"""
