"""Methods at few labels, each tuned at that number of labels, on several draws."""
