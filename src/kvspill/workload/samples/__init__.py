"""Small recordings of our own making, one per format, and the script that made them."""
