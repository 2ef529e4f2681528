"""FaLA: keep a user's personal model when the backbone under it is replaced."""
