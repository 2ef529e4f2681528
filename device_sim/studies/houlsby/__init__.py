"""Do adapters replace full fine-tuning on a small backbone (Houlsby)?

N. Houlsby et al., "Parameter-Efficient Transfer Learning for NLP" (ICML 2019), on CoLA and MRPC.
See ``README.md`` for the answer.
"""
