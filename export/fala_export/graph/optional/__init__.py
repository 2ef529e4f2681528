"""Optional inputs of an exported graph: adapters of tasks, prompts of writers."""
