"""How many bits a model is stored in, and what that takes."""
