"""A child process that reports its key in etcd, and then waits for its end."""

import json
import os
import sys

if __name__ == "__main__":
    for said in ({"registered": f"dispatchers/{os.getpid()}"}, {"ready": True}):
        os.write(int(sys.argv[1]), json.dumps(said).encode() + b"\n")
    sys.stdin.read()
