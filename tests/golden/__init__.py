"""Golden renders of the embedded pack: what neither bit-exact nor equivalent changes may move."""
