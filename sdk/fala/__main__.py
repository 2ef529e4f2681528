"""Run ``python -m fala`` as the command ``fala``."""

from fala_command import main

if __name__ == "__main__":
    main()
