"""Draw people, divide them, simulate them on devices, and score the results."""
