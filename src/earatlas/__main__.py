"""`python -m earatlas` is the command line."""

from earatlas.cli import main

main()
