"""What every room stands on: errors, checks before the work, files, the accelerator, silence."""
