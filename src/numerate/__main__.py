"""``python -m numerate`` is the console command."""

from numerate import interrupts


def main() -> None:
    interrupts.install()
    from numerate.cli import main

    main()


if __name__ == "__main__":
    main()
