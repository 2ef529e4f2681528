"""An app without a vendor: its own encoder is replaced by another one."""
