"""Methods at few labels: each tuned at that number of them, on several draws."""
