"""Parts of `benchmarks/speed.py`: timing, the main tasks, growth, and methods of other packages."""
