"""Writers' prompts compared with none (Oba et al., PerPLM)."""
