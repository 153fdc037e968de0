"""The command line. What a target changes is in targets.py; how a tree is changed, in tree.py."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import message, targets, tree
from .errors import PatchError


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(
        prog="python -m patches", description="Turns a clean upstream checkout into the pull request's tree.",
        epilog="Exit code 1: refused, nothing was written; the reason is on stderr.")
    out.add_argument("target", choices=sorted(targets.TARGETS), help="the repository that DIR is a checkout of")
    out.add_argument("--tree", type=Path, required=True, metavar="DIR",
                     help="the checkout; for mindspeed-ops a folder, made if it does not exist")
    out.add_argument("--check", action="store_true", help="say what would change and whether every site is known; "
                                                          "write nothing")
    out.add_argument("--branch", metavar="NAME", help="make this branch and put everything on it as one commit")
    return out


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        print(run(args.target, args.tree, args.check, args.branch))
    except PatchError as error:
        print(f"python -m patches: {error}", file=sys.stderr)
        return 1
    return 0


def run(name: str, folder: Path, check: bool, branch: str | None) -> str:
    target = targets.TARGETS[name]
    place = tree.Tree.open(folder, target)
    changes = target.changes(place)
    place.refuse_other_changes(changes)
    changed = {path: text for path, text in changes.items() if place.read(path) != text}
    if not changed:
        return f"{name}: nothing to do, {folder} has all {len(changes)} files as they should be"
    if check:
        return f"{name}: would change {len(changed)} files\n" + place.summary(changed)
    if branch and place.is_git:
        place.start(branch)
    for path, text in changed.items():
        place.write(path, text)
    text = message.build(target)
    if not place.is_git:
        return f"{name}: wrote {len(changed)} files\n" + "\n".join(sorted(changed))
    if branch:
        return f"{name}: committed on {branch}\n" + place.commit(changed, text)
    return f"{name}: changed {len(changed)} files\n{place.diffstat(changed)}\nSuggested commit message:\n\n{text}"
