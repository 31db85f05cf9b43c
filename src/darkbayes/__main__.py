"""``python -m darkbayes`` is the command line."""

from darkbayes.cli import main

if __name__ == "__main__":
    main()
