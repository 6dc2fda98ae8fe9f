"""What `mortal` prints: runs, samples and tables for people, tab-separated values for programs."""
