"""Small recordings made for kvspill, one per format, and the script that made them."""
