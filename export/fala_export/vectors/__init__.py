"""Static word vectors: read, trained, stored."""
