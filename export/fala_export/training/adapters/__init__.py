"""Train adapters: a task's small layers in a frozen backbone (Houlsby et al., ICML 2019)."""
