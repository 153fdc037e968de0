"""An upstream checkout: reading, refusing what is not clean, writing, and one commit. Knows git, not contents."""
from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import PatchError


@dataclass(frozen=True)
class Tree:
    root: Path
    is_git: bool

    @classmethod
    def open(cls, folder: Path, target) -> Tree:
        """Refuses what is not a checkout of the target, so that a wrong --tree is noticed before anything happens."""
        if target.marker is None:
            return cls(folder, (folder / ".git").exists())
        if not (folder / target.marker).exists():
            raise PatchError(f"{folder} is not a checkout of {target.name}: it has no {target.marker}")
        if not (folder / ".git").exists():
            raise PatchError(f"{folder} is not the root of a git checkout: a pull request starts from one")
        return cls(folder, True)

    def read(self, path: str) -> str | None:
        file = self.root / path
        return file.read_bytes().decode("utf-8") if file.is_file() else None

    def require(self, path: str) -> str:
        text = self.read(path)
        if text is None:
            raise PatchError(f"{path} is missing in {self.root}: this version is laid out differently from the one "
                             "that the patch knows")
        return text

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode("utf-8"))

    def git(self, *args: str) -> str:
        done = subprocess.run(["git", "-C", str(self.root), *args], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip()
            raise PatchError(f"git {' '.join(args[:2])} failed in {self.root}: {said}")
        return done.stdout

    def refuse_other_changes(self, changes: dict[str, str]) -> None:
        """A tree may differ from its commit only by what this package wrote there before."""
        if not self.is_git:
            return
        lines = self.git("status", "--porcelain", "--untracked-files=all", "-z").split("\0")
        dirty = [line[3:] for line in lines if line]
        foreign = sorted(path for path in dirty if path not in changes or self.read(path) != changes[path])
        if foreign:
            more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
            raise PatchError(f"{self.root} has changes that are not committed: {', '.join(foreign[:5])}{more}. Commit "
                             "or remove them first, so that the pull request holds nothing else")

    def summary(self, changed: dict[str, str]) -> str:
        return "\n".join(f"  {'edit' if self.read(path) is not None else 'add '} {path}" for path in sorted(changed))

    def start(self, branch: str) -> None:
        known = self.git("branch", "--list", branch).strip()
        self.git("switch", branch) if known else self.git("switch", "-c", branch)

    def diffstat(self, changed: dict[str, str]) -> str:
        self.git("add", "--intent-to-add", "--", *changed)
        return self.git("diff", "--stat=100", "HEAD", "--", *changed)

    def commit(self, changed: dict[str, str], text: str) -> str:
        self.git("add", "--", *changed)
        self.git("commit", "--no-verify", "-q", "-m", text)
        return self.git("show", "--stat=100", "--format=%h %s", "HEAD")
