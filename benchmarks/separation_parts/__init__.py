"""Parts of `benchmarks/separation.py`: metrics, methods, initializations of VESSL, and cost."""
