"""Provide what every package here uses: errors, early checks, files, the accelerator, silence."""
