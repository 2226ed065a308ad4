"""`python -m firstword` is the `firstword` command."""

from firstword.cli.main import main

if __name__ == "__main__":
    main()
