"""`python -m qwen_image …` and `qwen-image …`: the program itself, which lies in the package, in the place of Python."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "qwen-image"
    try:
        os.execv(program, ["qwen-image", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"qwen-image: {program}: {error.strerror}")


if __name__ == "__main__":
    main()
