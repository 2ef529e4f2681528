"""The vendor's side of FaLA: models in, bundles out."""
