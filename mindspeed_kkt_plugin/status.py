"""`python -m mindspeed_kkt_plugin.status [--json]`: prints what `mindspeed_kkt_plugin.status()` returns.

Only the printing lives here. The package's attribute `status` is that function and stays it, see the last lines.
"""
from __future__ import annotations

import argparse
import json
import sys

from mindspeed_kkt_plugin.integration.report import status


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mindspeed_kkt_plugin.status", description=__doc__.split(":")[0])
    parser.add_argument("--json", action="store_true", help="machine-readable")
    found = status()
    print(json.dumps(found, indent=2) if parser.parse_args(argv).json else _text(found))
    return 0


def _text(found: dict) -> str:
    def section(title: str, rows: dict) -> list[str]:
        return [title] + [f"  {name:<22} {value}" for name, value in rows.items()] + [""]

    lines = section("versions", {name: version or "no package metadata" for name, version in found["versions"].items()})
    lines += section("devices", {name: device or "none" for name, device in found["devices"].items()})
    lines += section("paths, in order of choice", {n: reason or "usable" for n, reason in found["paths"].items()})
    lines += ["consumers in MindSpeed"]
    for row in found["consumers"]:
        detail = f" ({row['detail']})" if row["detail"] else ""
        lines += [f"  {row['id']}  {row['state']}{detail}", f"      {row['target']}  [{row['chosen_by']}]"]
    last = found["last"]
    lines += ["", f"last call  {last['path']}: {last['why']}" if last else "last call  none in this process"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
# Importing a submodule binds it to its name in the package, which would hide the function `status` there. The import
# system binds whatever stands in sys.modules, so the function takes this module's place.
sys.modules[__name__] = status
