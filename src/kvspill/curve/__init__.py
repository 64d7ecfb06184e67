"""Hit rate against capacity: what a load would find in caches of any size, without a simulation for each."""
