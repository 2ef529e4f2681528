"""Adapters compared with full fine-tuning on benchmarks (Houlsby et al., ICML 2019)."""
