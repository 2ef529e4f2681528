"""The operations of a device, step by step: learn, forget, replace, refine, preview."""
