"""``python -m numerate`` is the console command."""

from numerate.cli import main

if __name__ == "__main__":
    main()
