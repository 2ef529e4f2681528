"""A task's own small layers in a backbone that stays as it is (Houlsby et al., ICML 2019)."""
