"""Writes what the packages contain: FOLDER/qwen-image-VERSION.spdx.json (SPDX 2.3).

Libraries are those that lie in an archive or a wheel; their versions are those of the Debian packages on this machine,
which they were copied from. A Debian package contains none: it depends on them.

    python3 -m tools.package.sbom build/package 0.2.0 libfmt-dev

The last words are packages that are compiled in from headers alone.
"""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import time
import zipfile

OWN_LIBRARY = "libqwen_image"


def printed(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def libraries_in(path):
    """Names of shared libraries in an archive or a wheel, without the hash that auditwheel adds."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    elif path.name.endswith(".tar.xz"):
        with tarfile.open(path) as archive:
            names = archive.getnames()
    else:
        return set()
    names = {pathlib.PurePosixPath(name).name for name in names}
    found = {re.sub(r"-[0-9a-f]{8}(?=[.-])", "", name) for name in names if re.search(r"\.so(\.|$)", name)}
    return {name for name in found if name.startswith("lib") and not name.startswith(OWN_LIBRARY)}


def system_libraries():
    """From names of libraries, as the loader and as their files have them, to paths."""
    paths = {}
    for line in printed("/sbin/ldconfig", "-p").splitlines():
        if " => " in line and "x86-64" in line:
            path = pathlib.Path(line.split(" => ")[1])
            paths.setdefault(path.name, path)
            paths.setdefault(path.resolve().name, path)
    return paths


def debian_package_of(path):
    """With /usr merged, dpkg may know a file without /usr."""
    real = str(path.resolve())
    for name in (real, real.removeprefix("/usr")):
        owner = printed("dpkg", "-S", name).split(":")[0]
        if owner:
            return owner
    raise SystemExit(f"sbom: no package has {path}")


def describe_debian_package(name):
    """As a package of SPDX; none if it is not installed."""
    form = "${Version}|${source:Package}|${source:Version}|${Architecture}|${Homepage}|${db:Status-Status}\n"
    lines = printed("dpkg-query", "-W", "-f", form, name).splitlines()
    if not lines or not lines[0].endswith("|installed"):
        return None
    version, source, source_version, architecture, homepage, _ = lines[0].split("|")
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(encoding="utf-8"), re.M))
    locator = f"pkg:deb/{release['ID']}/{name}@{version.replace('+', '%2B')}?arch={architecture}"
    return {
        "SPDXID": spdx_id(name),
        "name": name,
        "versionInfo": version,
        "supplier": f"Organization: {release['NAME']}",
        "downloadLocation": "NOASSERTION",
        "homepage": homepage or "NOASSERTION",
        "sourceInfo": f"built from {source} {source_version}; licence: licences/{name}.txt in the archive",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"{locator}&distro={release['ID']}-{release['VERSION_ID']}",
            }
        ],
    }


def describe_file(path, version):
    """One of our packages, as a package of SPDX."""
    return {
        "SPDXID": spdx_id(path.name),
        "name": "qwen-image",
        "versionInfo": version,
        "packageFileName": path.name,
        "supplier": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}],
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def dependencies_of(path):
    """Names of the packages that a Debian package depends on."""
    depends = printed("dpkg-deb", "-f", path, "Depends")
    return sorted({re.split(r"[ (|]", part.strip())[0] for part in depends.split(",") if part.strip()})


def main(folder, version, *header_packages):
    folder = pathlib.Path(folder)
    files = sorted(path for path in folder.iterdir() if path.name.endswith((".tar.xz", ".whl", ".deb")))
    paths = system_libraries()
    bundled, relations = {}, []

    def relate(file, kind, name):
        if name not in bundled:
            bundled[name] = describe_debian_package(name)
        if bundled[name]:
            relations.append(
                {"spdxElementId": spdx_id(file.name), "relationshipType": kind, "relatedSpdxElement": spdx_id(name)}
            )

    for file in files:
        relations.append(
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": spdx_id(file.name)}
        )
        libraries = libraries_in(file)
        missing = sorted(libraries - set(paths))
        if missing:
            raise SystemExit(f"sbom: {file.name} has {', '.join(missing)}, which this machine has not")
        for name in sorted({debian_package_of(paths[library]) for library in libraries}):
            relate(file, "CONTAINS", name)
        for name in header_packages:
            relate(file, "CONTAINS", name)
        if file.suffix == ".deb":
            for name in dependencies_of(file):
                relate(file, "DEPENDS_ON", name)

    created = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    packages = [describe_file(file, version) for file in files] + [package for package in bundled.values() if package]
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"qwen-image-{version}",
        # only has to be unique: the same packages have the same
        "documentNamespace": f"https://spdx.org/spdxdocs/qwen-image-{version}-{digest[:32]}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created)),
            "creators": ["Tool: qwen-image.cpp tools/package/sbom.py"],
        },
        "packages": packages,
        "relationships": relations,
    }
    (folder / f"qwen-image-{version}.spdx.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
