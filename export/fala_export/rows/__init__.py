"""Read labelled rows from files of every form."""
