"""How tables and plots are registered, written and drawn, and the report of them all."""
