"""What a network gives a plain TCP connection: seconds until a byte has arrived, and bytes per second.

    python -m tools.machines.probe answer ADDRESS
    python -m tools.machines.probe ask ADDRESS BYTES        prints both
"""

import json
import socket
import sys
import time

PORT = 5001
ROUNDS = 200
CHUNK = 1 << 20


def answer(address):
    with socket.create_server((address, PORT)) as server:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUNDS):
            connection.sendall(connection.recv(1))
        count, last = int.from_bytes(connection.recv(8), "little"), time.monotonic()
        connection.sendall(b"1")
        while count > 0:
            count -= len(connection.recv(CHUNK))
        connection.sendall(b"1")
        return time.monotonic() - last


def connected(address):
    for _ in range(100):
        try:
            return socket.create_connection((address, PORT))
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"nobody answers at {address}")


def ask(address, count):
    with connected(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = time.monotonic()
        for _ in range(ROUNDS):
            connection.sendall(b"1")
            connection.recv(1)
        latency = (time.monotonic() - start) / ROUNDS / 2
        connection.sendall(count.to_bytes(8, "little"))
        connection.recv(1)
        start = time.monotonic()
        connection.sendall(bytes(count))
        connection.recv(1)
        print(json.dumps({"latency": latency, "rate": count / (time.monotonic() - start)}))


def main():
    if sys.argv[1] == "answer":
        answer(sys.argv[2])
    else:
        ask(sys.argv[2], int(sys.argv[3]))


if __name__ == "__main__":
    main()
