"""Signed updates, the vendor's side: keys, a static repository, and signatures of single files."""
