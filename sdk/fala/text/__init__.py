"""The lexical view: a text's own n-grams as features, which cost no forward pass."""
