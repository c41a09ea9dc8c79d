"""The HTTP endpoint: OpenAI's routes, native routes, and what operating it takes."""
