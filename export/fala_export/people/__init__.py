"""People: drawn, folded, simulated on devices, and scored."""
