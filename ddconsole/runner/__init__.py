"""The runner: one launch, that is the server's life, the cells measured on it, and what is written of them."""
