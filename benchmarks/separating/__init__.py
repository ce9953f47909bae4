"""The parts of `benchmarks/separation.py`: figures of one mixture, methods, starts, and cost."""
