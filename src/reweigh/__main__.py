"""`python -m reweigh` is `reweigh`."""

from reweigh.cli import main

if __name__ == "__main__":
    main()
