"""Read and store static word vectors."""
