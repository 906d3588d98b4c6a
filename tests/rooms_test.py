#!/usr/bin/env python3
"""Every library includes headers of the libraries below it only, as its CMakeLists.txt lists them.

    tests/rooms_test.py SOURCE_FOLDER ROOMS_FILE

A static library may use whatever the program links, so a linker does not notice a wrong direction. Whoever calls something
includes its header, so the headers tell. ROOMS_FILE is what cmake/targets.cmake writes.
"""

import re
import sys
from pathlib import Path


def read_rooms(path, source):
    """name -> (the stems of its sources, relative to the roots of includes; names of direct dependencies)."""
    rooms = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, folder, sources, depends = line.split(";")
        files = [(source / folder / file).resolve() for file in sources.split(",")]
        rooms[name] = (files, [other for other in depends.split(",") if other])
    return rooms


def below(rooms, name):
    """The library, and all that stands below it."""
    found, waiting = set(), [name]
    while waiting:
        room = waiting.pop()
        if room in rooms and room not in found:
            found.add(room)
            waiting += rooms[room][1]
    return found


def owners_of_folders(rooms):
    """Folder -> the libraries that have sources in it."""
    owners = {}
    for name, (files, _) in rooms.items():
        for file in files:
            owners.setdefault(file.parent, set()).add(name)
    return owners


def sources_and_headers(files, owners):
    """A library's sources, their headers, and the other headers of a folder that is its alone."""
    found = set(files)
    for file in files:
        header = file.with_suffix(".h")
        if header.exists():
            found.add(header)
        if len(owners[file.parent]) == 1:
            found.update(h for h in file.parent.glob("*.h") if "testing" not in h.name and h.name != "test_client.h")
    return found


def owner_of(header, rooms, owners):
    """The libraries that a header belongs to; none: it is not of a library's folder."""
    candidates = owners.get(header.parent, set())
    own = {name for name in candidates if header.with_suffix(".cc") in rooms[name][0]}
    return own or candidates


def main():
    source, rooms_file = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    rooms = read_rooms(rooms_file, source)
    owners = owners_of_folders(rooms)
    wrong, includes = [], 0
    for name, (files, _) in sorted(rooms.items()):
        allowed = below(rooms, name)
        for file in sorted(sources_and_headers(files, owners)):
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = re.match(r'#include "([^"]+\.h)"', line)
                header = match and next(
                    (root / match[1] for root in (source / "src", source / "apps") if (root / match[1]).exists()), None
                )
                if not header:
                    continue
                includes += 1
                owner = owner_of(header.resolve(), rooms, owners)
                if owner and not owner & allowed:
                    place = file.relative_to(source)
                    wrong.append(f"{place}:{number}: {name} may not use {' or '.join(sorted(owner))}: {match[1]}")
    print("\n".join(wrong))
    print(f"{len(rooms)} libraries, {includes} includes, {len(wrong)} in a wrong direction")
    return 1 if wrong or len(rooms) < 20 or includes < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
