"""Speed side by side with the quality of the answer: `python -m benchmarks --help`."""
