"""Running: from what is asked to records, each job in a process of its own."""
