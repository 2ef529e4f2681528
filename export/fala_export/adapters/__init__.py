"""Adapters: small layers of a task's own in a backbone that stays as it is (Houlsby et al., 2019)."""
