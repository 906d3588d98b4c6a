"""Turns the tensors that another program dumped into a run, which `qwen-image compare REF RUN` understands.

    python -m tools.reference.import_run dumps/ --map tools/reference/maps/mflux.json \\
        --manifest-from debug_artifacts/run/ref --run-id run --tool mflux

reads .npy, .npz, .safetensors and torch's .pt/.pth (without running what a pickle may hold) and writes
debug_artifacts/run/mflux. `--suggest` prints a map to start from instead.
"""

import argparse
import collections
import json
import sys
from pathlib import Path

from tools.reference import suggest_map
from tools.reference.checkpoint_store import CheckpointStore
from tools.reference.foreign_files import open_dump, storable
from tools.reference.name_map import NameMap

# What two runs must agree on to be compared.
SETTINGS = ("pipeline", "prompt", "negative_prompt", "width", "height", "steps", "cfg", "seed", "max_sequence_length")
SHOWN_NAMES = 20


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", help="files or folders")
    parser.add_argument("--map", help="JSON: their names to the reference's; see name_map.py and maps/")
    parser.add_argument("--manifest-from", metavar="REF", help="the reference run: its settings are taken over")
    parser.add_argument("--settings", nargs="*", default=[], metavar="KEY=VALUE", help="e.g. prompt='a cat' steps=4")
    parser.add_argument("--allow-unmapped", action="store_true", help="leave out what the reference does not know")
    parser.add_argument("--suggest", action="store_true", help="print a map made from shapes, values and order; needs REF")
    parser.add_argument("--tool", default="foreign", help="who dumped the tensors")
    parser.add_argument("--run-id", default="run", help="write to debug_artifacts/RUN_ID/TOOL (default: run)")
    parser.add_argument("--out", help="write to this folder instead")
    parser.add_argument("--overwrite", action="store_true", help="replace an earlier run in the folder")
    args = parser.parse_args(argv)
    if args.suggest and not args.manifest_from:
        parser.error("--suggest needs --manifest-from: the run whose names are to be matched")
    args.out = Path(args.out) if args.out else Path("debug_artifacts") / args.run_id / args.tool
    return args


def read_manifest(folder):
    path = Path(folder) / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return {**manifest, "checkpoints": {entry["name"]: entry for entry in manifest["checkpoints"]}}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path}: not the manifest of a run: {error!r}") from None


def read_settings(texts):
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise SystemExit(f"--settings {text!r}: expected KEY=VALUE")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return settings


def open_all(paths):
    tensors = {}
    for path in paths:
        for name, read in open_dump(path).items():
            if name in tensors:
                raise SystemExit(f"{name} is in two of the dumps")
            tensors[name] = read
    return tensors


def resolve(names, name_map, reference):
    """Their name -> (the reference's name, the rule that gave it or None), and the names without a place."""
    found, unmapped, sources = {}, [], {}
    for name in names:
        rule = name_map.find(name) if name_map else None
        if rule and rule.leaves_out:
            continue
        target = rule.rename(name) if rule else name
        known = target in reference["checkpoints"] if reference else rule is not None or name_map is None
        if not known:
            unmapped.append(name if target == name else f"{name} (mapped to {target})")
            continue
        if target in sources:
            raise SystemExit(f"{sources[target]} and {name} both become {target}")
        sources[target] = name
        found[name] = (target, rule)
    return found, unmapped


def report_unmapped(unmapped, allowed):
    if not unmapped:
        return
    shown = "\n  ".join(unmapped[:SHOWN_NAMES])
    more = f"\n  and {len(unmapped) - SHOWN_NAMES} more" if len(unmapped) > SHOWN_NAMES else ""
    text = f"{len(unmapped)} tensors have no place in the reference:\n  {shown}{more}"
    if not allowed:
        raise SystemExit(f"{text}\nmap them (null leaves one out), or give --allow-unmapped to leave all of them out")
    print(text, file=sys.stderr)


def order_fact(dumps, names, reference):
    """Folders and names that are merely sorted do not tell which tensor was computed first; the manifest says so."""
    if reference:
        return {"order": reference["order"]} if "order" in reference else {}
    in_folder = len(dumps) > 1 or Path(dumps[0]).is_dir()
    return {"order": "unknown"} if in_folder or names == sorted(names) else {}


def manifest_facts(args, reference, float_types, names):
    settings = {key: reference[key] for key in SETTINGS if key in reference} if reference else {}
    return {
        "tool": args.tool,
        **settings,
        # Tolerances follow the precision in which the run was made.
        "dtype": float_types.most_common(1)[0][0] if float_types else "int64",
        "checkpoints_level": reference.get("checkpoints_level", "all") if reference else "all",
        **order_fact(args.dumps, names, reference),
        **read_settings(args.settings),
    }


def import_tensors(args, tensors, reference):
    name_map = NameMap.read(args.map) if args.map else None
    found, unmapped = resolve(tensors, name_map, reference)
    report_unmapped(unmapped, args.allow_unmapped)
    if not found:
        raise SystemExit("none of the tensors has a place in the reference")
    if reference:  # the dumps are listed by name; the reference tells when each was computed
        place = {name: i for i, name in enumerate(reference["checkpoints"])}
        found = dict(sorted(found.items(), key=lambda entry: place[entry[1][0]]))
    float_types = collections.Counter()
    with CheckpointStore(args.out, args.overwrite) as store:
        for name, (target, rule) in found.items():
            array, kind = storable(name, tensors[name]())
            array = rule.arrange(name, array) if rule else array
            guess = {"guessed": True} if rule and rule.guessed else {}
            store.save(target, array, {"original_name": name, "original_dtype": kind, **guess})
            if array.dtype.kind == "f":
                float_types[kind] += 1
        store.write_manifest(manifest_facts(args, reference, float_types, list(found)))
    guessed = [target for target, rule in found.values() if rule and rule.guessed]
    if guessed:
        shown = ", ".join(guessed[:SHOWN_NAMES])
        print(f"{len(guessed)} pairs are only guessed (check them in the map): {shown}", file=sys.stderr)
    print(f"{len(store.entries)} checkpoints in {store.folder}", file=sys.stderr)
    if args.manifest_from:
        print(f"next: qwen-image compare {args.manifest_from} {args.out}", file=sys.stderr)


def import_run(argv=None):
    args = parse_arguments(argv)
    tensors = open_all(args.dumps)
    reference = read_manifest(args.manifest_from) if args.manifest_from else None
    if args.suggest:
        suggestion = suggest_map.suggest(tensors, Path(args.manifest_from), list(reference["checkpoints"].values()))
        print(json.dumps(suggestion, indent=1, ensure_ascii=False))
    else:
        import_tensors(args, tensors, reference)


if __name__ == "__main__":
    import_run()
