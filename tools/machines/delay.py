"""A switch that holds every frame back for a while, for kernels whose tc has no netem.

    python -m tools.machines.delay MILLISECONDS PORT…

Runs in a network namespace of its own that has the ports. Frames go on in the order of their arrival. The last byte of a
machine's hardware address is the number of its port, from 1 on. Frames stay as large as the sender's kernel made them (up to
64 KiB, cut by the receiver's), so that Python can carry a gigabit per second.
"""

import select
import socket
import sys
import time
from collections import deque

SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
ALL_PROTOCOLS = 0x0300  # in the order of the network
HEADER = 10  # before each frame: how it is to be cut, and where its checksum goes
MOST_BYTES = 1 << 17


def open_port(name):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL_PROTOCOLS)
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    port.bind((name, 0))
    port.setblocking(False)
    return port


def targets(frame, origin, ports):
    if frame[HEADER] & 1:  # to all
        return [port for port in ports if port is not origin]
    number = frame[HEADER + 5]
    return [ports[number - 1]] if 1 <= number <= len(ports) else []


def send(port, frame):
    while True:
        try:
            port.send(frame)
            return
        except BlockingIOError:
            select.select([], [port], [])


def carry(delay, ports):
    waiting: deque[tuple[float, socket.socket, bytes]] = deque()
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for port in select.select(ports, [], [], left)[0]:
            try:
                frame = port.recv(MOST_BYTES)
            except (BlockingIOError, OSError):
                continue
            due = time.monotonic() + delay
            waiting.extend((due, target, frame) for target in targets(frame, port, ports))
        while waiting and waiting[0][0] <= time.monotonic():
            _, target, frame = waiting.popleft()
            send(target, frame)


def main():
    carry(float(sys.argv[1]) / 1000, [open_port(name) for name in sys.argv[2:]])


if __name__ == "__main__":
    main()
