"""Weights as they lie in a model's files, under the names that Hugging Face gives them."""
