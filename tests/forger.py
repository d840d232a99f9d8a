"""A hostile program on a host: sends any bytes to any address, as root of that host could.

Run as `python -m tests.forger WIRE`: the endpoint of an emulated host, or nothing for a host with
a real interface. It reads lines with an address and a payload, both in hexadecimal.
"""

import sys

from dzflow.sdk.events.links import open_link


def main() -> None:
    link = open_link({"wire": sys.argv[1]} if len(sys.argv) > 1 else {})
    sent = 0
    for line in sys.stdin:
        address, payload = line.split()
        link.send(int(address, 16), bytes.fromhex(payload))
        sent += 1
    link.close()
    print(sent)


if __name__ == "__main__":
    main()
