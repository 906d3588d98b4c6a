"""Reads and writes objects with NATS' own client: read_objects.py URL NAME FILE. For submit_test.cc."""

import asyncio
import sys
from pathlib import Path

import nats


async def main(url, name, file):
    connection = await nats.connect(url)
    store = await connection.jetstream().object_store("qwen_image")
    Path(file).write_bytes((await store.get(name)).data)
    large = await store.get("large")
    assert large.data == b"x" * 400_000 and large.info.chunks == 4 and large.info.options.max_chunk_size == 128 << 10
    assert large.info.digest.startswith("SHA-256="), large.info
    assert {entry.name for entry in await store.list()} >= {name, "large"}
    await store.put("from python", b"p" * 200_000)
    await connection.close()


asyncio.run(main(*sys.argv[1:]))
