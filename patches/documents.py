"""Documents of the pull requests: our own pages under docs/zh with the names that hold in that repository."""
from __future__ import annotations

import re
from pathlib import Path

from .errors import PatchError

DOCS = Path(__file__).resolve().parents[1] / "docs/zh"
OPS_ROW = ('<tr><td>线性注意力</td><td><a href="../ops/chunk_gated_delta_rule_fwd_kkt_solve.md">'
           'chunk_gated_delta_rule_fwd_kkt_solve</a></td><td>❌</td><td>✅</td></tr>')
FEATURE_ROW = ('    <tr>\n      <td>亲和计算特性</td>\n'
               '      <td><a href="../features/fused_gdn_kkt_solve.md">GDN kkt_solve融合</a></td>\n    </tr>')
OPERATOR_LINKS = {"mindspeed": "../ops/chunk_gated_delta_rule_fwd_kkt_solve.md"}
ONLINE = "https://gitcode.com/Ascend/MindSpeed/blob/master/docs/zh/ops/chunk_gated_delta_rule_fwd_kkt_solve.md"


def operator_page(package: str) -> str:
    text = _read("operator.md")
    text = text.replace("from mindspeed_kkt_plugin import", f"from {package} import")
    return _published(text)


def feature_page(target: str) -> str:
    """The feature's page with this repository's way of switching it on."""
    text = _read("feature.md")
    parts = dict(re.findall(r"<!-- only: ([\w-]+) -->\n(.*?)<!-- end -->\n", text, re.S))
    if target not in parts:
        raise PatchError(f"docs/zh/feature.md says nothing for {target}")
    text = re.sub(r"<!-- only: ([\w-]+) -->\n(.*?)<!-- end -->\n",
                  lambda match: match[2] if match[1] == target else "", text, flags=re.S)
    text = text.replace("(operator.md)", f"({OPERATOR_LINKS.get(target, ONLINE)})")
    return _published(text)


def _read(name: str) -> str:
    file = DOCS / name
    if not file.is_file():
        raise PatchError(f"docs/zh/{name} is missing in this repository")
    return file.read_text(encoding="utf-8")


def _published(text: str) -> str:
    """Without the marks of generated blocks, images and links to pages that stay here (their words stay)."""
    text = re.sub(r"<!-- /?figures.*?-->\n", "", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n*", "", text)
    text = re.sub(r"\[([^\]]+)\]\((?!https?:|\.\./ops/|#)[^)]*\)", r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text)
