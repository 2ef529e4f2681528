"""What a new release must do before it is installed: load and answer, where it harms nobody."""
