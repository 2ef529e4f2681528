"""Writers' prompts: one backbone that predicts the label of a given writer (PerPLM).

Oba et al., "PerPLM: Personalized Fine-tuning of Pretrained Language Models via Writer-specific
Intermediate Learning and Prompts" (arXiv 2309.07727).
"""
