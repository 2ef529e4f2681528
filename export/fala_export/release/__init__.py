"""Make a release from a recipe, and inspect bundles."""
