"""Define a recipe: typed settings, as options of commands and as tables of a TOML file."""
