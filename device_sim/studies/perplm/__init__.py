"""Does a prompt for each writer make a backbone better than none (PerPLM)?

Oba et al., "PerPLM: Personalized Fine-tuning of Pretrained Language Models via Writer-specific
Intermediate Learning and Prompts" (arXiv 2309.07727). See ``README.md`` for the answer.
"""
