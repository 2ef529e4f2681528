"""From a recipe to a release, and what is in one."""
