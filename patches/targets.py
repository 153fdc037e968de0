"""What each upstream repository gets: where the operator's files go, which lists and forwards are edited.

A target's `changes` maps a path to the text it must have; nothing is written here. Texts are in templates/.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mindspeed_kkt_plugin.integration.consumers import CONSUMERS

from . import documents, lists, operator, sites
from .tree import Tree

TEMPLATES = Path(__file__).parent / "templates"
CORE = "mindspeed.ops.triton.kkt_solve"
OPS = "mindspeed_ops.api.triton.kkt_solve"
FEATURE = "FusedGdnKktSolveFeature"
PLUGIN_CLASS = f"class {FEATURE}(MindSpeedFeature):\n    # the plugin's: flag and validation\n"
FEATURE_MODULE = "mindspeed.features_manager.fusions.fused_gdn_kkt_solve"


@dataclass(frozen=True)
class Target:
    """marker: a file that only this repository has (None: any folder will do); title: the commit's first line."""

    name: str
    marker: str | None
    title: str
    make: Callable[[Tree], dict[str, str]]

    def changes(self, tree: Tree) -> dict[str, str]:
        return self.make(tree)


def _new(tree: Tree, files: dict[str, str]) -> dict[str, str]:
    return operator.formatted(files, (tree.root / "pre-commit/pyproject.toml").resolve())


def _template(name: str, package: str) -> str:
    text = (TEMPLATES / name).read_text(encoding="utf-8").replace("upstream_package", package)
    return operator.HEADER + "\n" + text if name.endswith(".py") else text


def _feature() -> str:
    """The plugin's flag and validation; what it registers is the switch, since the forwards themselves ask it."""
    kept = operator.class_source("integration/feature.py", ("__init__", "register_args", "validate_args"))
    return _template("mindspeed/feature.py", CORE).replace(PLUGIN_CLASS, kept)


def _mindspeed(tree: Tree) -> dict[str, str]:
    features, menu = "mindspeed/features_manager/__init__.py", "docs/zh/_menu.md"
    ops, overview = "docs/zh/ops/ops_list.md", "docs/zh/features/feature_list.md"
    out = _new(tree, operator.files(CORE, TEMPLATES) | {
        FEATURE_MODULE.replace(".", "/") + ".py": _feature(),
        "tests_extend/unit_tests/ops/triton/test_chunk_gated_delta_rule_fwd_kkt_solve.py":
            _template("operator/test_kkt_solve.py", CORE),
    })
    out[features] = lists.add_feature(tree.require(features), features, "add_fusions_features", FEATURE,
                                      FEATURE_MODULE)
    out["docs/zh/ops/chunk_gated_delta_rule_fwd_kkt_solve.md"] = documents.operator_page(CORE)
    out["docs/zh/features/fused_gdn_kkt_solve.md"] = documents.feature_page("mindspeed")
    out[ops] = lists.add_before(tree.require(ops), ops, "</tbody></table>", documents.OPS_ROW)
    out[overview] = lists.add_before(tree.require(overview), overview, "</tbody>", documents.FEATURE_ROW)
    out[menu] = lists.add_after(tree.require(menu), menu, "(./features/ops_flops_cal.md)",
                                "    - [GDN kkt_solve融合](./features/fused_gdn_kkt_solve.md)")
    return out


def _edited_forwards(tree: Tree, package: str, imported_from: str) -> dict[str, str]:
    chosen = [consumer for consumer in CONSUMERS if consumer.package == package]
    return {sites.path_of(consumer): sites.edit(tree.require(sites.path_of(consumer)), consumer, imported_from)
            for consumer in chosen}


def _mindspeed_llm(tree: Tree) -> dict[str, str]:
    features, menu = "mindspeed_llm/features_manager/__init__.py", "docs/zh/_menu.md"
    out = _edited_forwards(tree, "mindspeed_llm", CORE)
    out |= _new(tree, {"tests/ut/transformer/test_fused_kkt_solve_forward.py":
                       _template("mindspeed_llm/test_forward.py", CORE)})
    out[features] = lists.add_feature(tree.require(features), features, "add_fusions_features", FEATURE,
                                      FEATURE_MODULE)
    out["docs/zh/pytorch/features/mcore/fused_gdn_kkt_solve.md"] = documents.feature_page("mindspeed-llm")
    out[menu] = lists.add_after(tree.require(menu), menu, "(./pytorch/features/README.md)",
                                "  - [GDN kkt_solve融合](./pytorch/features/mcore/fused_gdn_kkt_solve.md)")
    return out


def _mindspeed_mm(tree: Tree) -> dict[str, str]:
    menu = "docs/zh/_menu.md"
    bridge = "mindspeed_mm.fsdp.ops.gdn.kkt_solve"
    out = _edited_forwards(tree, "mindspeed_mm", bridge)
    out |= _new(tree, {
        bridge.replace(".", "/") + ".py": _template("mindspeed_mm/bridge.py", CORE),
        "tests/ut_fsdp/ops/test_fused_kkt_solve_forward.py": _template("mindspeed_mm/test_forward.py", bridge),
    })
    out["docs/zh/features/fused_gdn_kkt_solve.md"] = documents.feature_page("mindspeed-mm")
    out[menu] = lists.add_after(tree.require(menu), menu, "(./features/chunkloss.md)",
                                "    - [GDN kkt_solve融合](./features/fused_gdn_kkt_solve.md)")
    return out


def _mindspeed_ops(tree: Tree) -> dict[str, str]:
    """No public tree: the layout is the one its users import from, `mindspeed_ops.api.triton`."""
    out = _new(tree, operator.files(OPS, TEMPLATES) | {
        "tests/ops/triton/test_chunk_gated_delta_rule_fwd_kkt_solve.py": _template("operator/test_kkt_solve.py", OPS)})
    out["docs/zh/chunk_gated_delta_rule_fwd_kkt_solve.md"] = documents.operator_page(OPS)
    return out


TARGETS = {target.name: target for target in (
    Target("mindspeed", "mindspeed/ops/triton/solve_tril.py",
           "feat(triton): fused chunk_gated_delta_rule_fwd_kkt_solve for Ascend A2/A3", _mindspeed),
    Target("mindspeed-llm", "mindspeed_llm/__init__.py",
           "feat(triton): Gated DeltaNet forwards use the fused kkt_solve operator", _mindspeed_llm),
    Target("mindspeed-mm", "mindspeed_mm/__init__.py",
           "feat(triton): Gated DeltaNet forwards use the fused kkt_solve operator", _mindspeed_mm),
    Target("mindspeed-ops", None, "feat(triton): fused chunk_gated_delta_rule_fwd_kkt_solve for Ascend A2/A3",
           _mindspeed_ops),
)}
