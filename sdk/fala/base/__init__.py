"""What every room stands on: errors, examples, files, exact products, forks and threads."""
