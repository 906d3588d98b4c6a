"""PNG files of 8-bit colours, with the standard library alone."""

import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write(path, width, height, colour):
    """colour(x, y) gives (red, green, blue)."""
    rows = b"".join(b"\0" + bytes(value for x in range(width) for value in colour(x, y)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def paeth(left, above, corner):
    distances = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    return (left, above, corner)[distances.index(min(distances))]


def unfilter(kind, line, above, step):
    for i in range(len(line)):
        left = line[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        guess = (0, left, above[i], (left + above[i]) // 2, paeth(left, above[i], corner) if kind == 4 else 0)[kind]
        line[i] = (line[i] + guess) & 255
    return line


def read(path):
    """(width, height, bytes of all pixels)"""
    data, offset, packed = path.read_bytes(), len(SIGNATURE), b""
    while offset < len(data):
        (size,), kind = struct.unpack_from(">I", data, offset), data[offset + 4 : offset + 8]
        body = data[offset + 8 : offset + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colours = struct.unpack_from(">IIBB", body)
            if (depth, colours) != (8, 2):
                raise ValueError(f"{path}: a PNG of {depth} bits and colour type {colours}, where 8 and 2 are expected")
        elif kind == b"IDAT":
            packed += body
        offset += 12 + size
    rows, line, above, pixels = zlib.decompress(packed), 3 * width, bytes(3 * width), bytearray()
    for start in range(0, height * (line + 1), line + 1):
        above = unfilter(rows[start], bytearray(rows[start + 1 : start + 1 + line]), above, 3)
        pixels += above
    return width, height, bytes(pixels)


def differences(a, b):
    """None if two pictures are equal, else a few words."""
    if a == b:
        return None
    if a[:2] != b[:2]:
        return f"{a[0]}x{a[1]} and {b[0]}x{b[1]} pixels"
    steps = [abs(x - y) for x, y in zip(a[2], b[2])]
    changed, mean = sum(step > 0 for step in steps), sum(steps) / len(steps)
    return f"{changed} of {len(steps)} values differ, by {max(steps)} at most, {mean:.4f} on average"
