"""A page on this machine to look around a store with, while it grows."""
