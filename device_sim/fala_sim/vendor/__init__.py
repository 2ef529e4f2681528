"""What the vendor makes of a backbone and of a data set's public, before any user is looked at."""
