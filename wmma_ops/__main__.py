"""python -m wmma_ops …"""

import sys

from wmma_ops.cli.main import run

if __name__ == "__main__":
    sys.exit(run())
