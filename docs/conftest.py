"""The scripts beside the pages are no tests: they want the tools of the site, or take minutes."""

collect_ignore_glob = ["*.py"]
