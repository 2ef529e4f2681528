"""Houlsby et al. (ICML 2019): adapters against full fine-tuning, on benchmarks without people."""
