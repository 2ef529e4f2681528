"""Writers' prompts: one backbone that is told whose label it is to guess (PerPLM).

Oba et al., "PerPLM: Personalized Fine-tuning of Pretrained Language Models via Writer-specific
Intermediate Learning and Prompts" (arXiv 2309.07727).
"""
