"""What the tests and the benchmarks have in common: projects, runs, servers, ways to kill them."""
