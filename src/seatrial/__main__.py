"""``python -m seatrial``, which is also how torchrun starts it."""

from seatrial.cli.main import main

if __name__ == "__main__":
    main()
