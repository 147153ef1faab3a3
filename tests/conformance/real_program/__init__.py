"""A program over 33 crates of the Rust ecosystem, none of them written for a GPU."""
