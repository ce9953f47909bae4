"""Entry point of `python -m earatlas`."""

from earatlas.cli import main

main()
