"""Requests and events all the time, from the hosts of a network namespace, until the input ends.

The exit code is 0 only if each request was acknowledged, and each event came exactly once. A
request may take several attempts: the SDK repeats what was not answered, as for every caller.
"""

import os
import sys

from tests.callers import EventFlow, RequestLoop


def main() -> None:
    """Run; the word is the address of the API, and the variable DZFLOW_TOKEN the caller's token."""
    url, token = sys.argv[1], os.environ["DZFLOW_TOKEN"]
    with EventFlow(url, token), RequestLoop(url, token) as requests:
        requests.wait_for_more(1)
        print("flowing", flush=True)
        for _ in sys.stdin:
            requests.wait_for_more(5)
            print(requests.done, flush=True)


if __name__ == "__main__":
    main()
