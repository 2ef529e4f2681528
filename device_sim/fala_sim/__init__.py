"""The laboratory of FaLA: real users' data and simulated devices."""
