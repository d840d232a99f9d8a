"""What `spark-submit` runs: `dzflow trace` with the given words."""

import sys

from dzflow.cli import main

sys.argv[:1] = ["dzflow", "trace"]
main()
