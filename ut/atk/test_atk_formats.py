"""The design YAMLs, case files and node files keep to ATK's documented formats, and every name in them resolves."""
from __future__ import annotations

import copy
import re

import pytest
import yaml

from ut.atk.package import CASE_FILES, DESIGNS, EXECUTOR, GENERATOR, PACKAGE, frozen, needs_standin, plugin
from ut.atk_standin import generate, names, schema

NODE_FILES = sorted(PACKAGE.glob("nodes_*.yaml"))


def design(kind: str = "accuracy") -> dict:
    return yaml.safe_load(DESIGNS[kind].read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", DESIGNS)
def test_design_matches_the_documented_format(kind):
    assert generate.read_design(DESIGNS[kind])["name"] == PACKAGE.name


@pytest.mark.parametrize("path", NODE_FILES, ids=lambda path: path.stem)
def test_node_file_matches_the_documented_format(path):
    nodes = yaml.safe_load(path.read_text(encoding="utf-8"))
    schema.NODES(path.name, nodes)
    assert nodes["nodes"][0]["name"] == "dut", "the first node is the device under test"


@pytest.mark.parametrize("kind", CASE_FILES)
def test_case_file_matches_the_documented_format_and_stays_small(kind):
    schema.CASES(kind, frozen(kind))
    assert CASE_FILES[kind].stat().st_size < 200_000


@pytest.mark.parametrize("kind", CASE_FILES)
def test_case_file_survives_reading_and_writing(kind, tmp_path):
    copied = tmp_path / "cases.json"
    generate.write_cases(generate.read_cases(CASE_FILES[kind]), copied)
    assert copied.read_bytes() == CASE_FILES[kind].read_bytes()


def test_both_designs_declare_the_same_inputs():
    accuracy, performance = design(), design("performance")
    for entry in accuracy["inputs"] + performance["inputs"]:
        del entry["dtypes"]
    assert accuracy["inputs"] == performance["inputs"]


BROKEN_DESIGNS = {
    "unknown key": (lambda d: d.update(compute_times=3), "unknown key 'compute_times'"),
    "missing key": (lambda d: d.pop("generate"), "key 'generate' is missing"),
    "built-in executor": (lambda d: d.update(api_type="function"), "taken by ATK"),
    "two standards": (lambda d: d["standard"]["acc"].update(single_bm={}), "exactly one of"),
    "unknown standard": (lambda d: d["standard"].update(acc={"exact_bm": {}}), "exactly one of"),
    "unknown tolerance": (lambda d: d["standard"].update(acc={"mixed_tolerance_bm": {"bf16_tol": 1}}), "unknown key"),
    "extra cases": (lambda d: d.update(extra_numbers="all"), "allowed: 0"),
    "unknown dtype": (lambda d: d["inputs"][0]["dtypes"].update(values=["bfloat16"]), "'bfloat16'"),
    "no invalid range": (lambda d: d["inputs"][0]["ranges"].pop("invalid"), "'invalid' is missing"),
    "shape of an attribute": (lambda d: d["inputs"][4].update(shapes={}), "unknown key 'shapes'"),
    "string for a number": (lambda d: d.update(dtype_numbers="30"), "dtype_numbers: is '30'"),
}


@pytest.mark.parametrize("name", BROKEN_DESIGNS)
def test_broken_design_is_refused(name):
    damage, message = BROKEN_DESIGNS[name]
    broken = design()
    damage(broken)
    with pytest.raises(schema.SchemaError, match=re.escape(message)):
        schema.DESIGN("design", broken)


BROKEN_CASES = {
    "unknown key": (lambda c: c[0].update(tag="x"), "unknown key 'tag'"),
    "unknown key of an input": (lambda c: c[0]["inputs"][0].update(note=1), "unknown key 'note'"),
    "shape of an attribute": (lambda c: c[0]["inputs"][4].update(shape=[1]), "shape: is [1]"),
    "tensor without range": (lambda c: c[0]["inputs"][0].update(range_values=[]), "at least 1 needed"),
    "same name and id": (lambda c: c.append(copy.deepcopy(c[0])), "share name and id"),
    "no cases": (lambda c: c.clear(), "at least 1 needed"),
}


@pytest.mark.parametrize("name", BROKEN_CASES)
def test_broken_case_file_is_refused(name):
    damage, message = BROKEN_CASES[name]
    cases = frozen("accuracy")[:2]
    damage(cases)
    with pytest.raises(schema.SchemaError, match=re.escape(message)):
        schema.CASES("cases", cases)


@needs_standin
def test_every_name_in_the_designs_is_registered():
    plugin(GENERATOR)
    plugin(EXECUTOR)
    for kind in DESIGNS:
        assert design(kind)["generate"] in names.GENERATORS
        assert design(kind)["api_type"] in names.EXECUTORS
        assert {case["api_type"] for case in frozen(kind)} == {design(kind)["api_type"]}


@needs_standin
def test_plugins_can_be_found_by_versions_that_read_their_source():
    """26.5.14 takes names from string literals, counts generator classes and wants both base classes in sight."""
    executor, generator = plugin(EXECUTOR), plugin(GENERATOR)
    assert re.findall(r'@register\("(\w+)"\)', EXECUTOR.read_text()) == ["executor_kkt_solve"]
    registered = re.findall(r'@GENERATOR_REGISTRY\.register\("(\w+)"\)', GENERATOR.read_text())
    subclasses = [c for c in vars(generator).values() if isinstance(c, type) and issubclass(c, names.CaseGenerator)]
    assert len(registered) == len(subclasses) - 1, "all but the imported base class carry a decorator"
    assert {"BaseApi", "AclnnBaseApi"} <= vars(executor).keys()


@needs_standin
def test_undeclared_attribute_of_a_case_is_refused():
    case = generate.read_cases(CASE_FILES["accuracy"])[0]
    with pytest.raises(AttributeError):
        case.private_tag = 1


def test_operator_folder_cannot_shadow_the_real_atk():
    assert not (PACKAGE.parent / "__init__.py").exists()
    assert not (PACKAGE / "__init__.py").exists()


@pytest.mark.parametrize("readme", ["README.md", "README.en.md"])
def test_readme_states_the_number_of_cases(readme):
    text = (PACKAGE / readme).read_text(encoding="utf-8")
    stated = [int(number) for number in re.findall(r"[（(](\d+)(?: 条)?[)）]", text.split("##")[0])]
    assert stated == [len(frozen("accuracy")), len(frozen("performance"))]
    for name in re.findall(r"`((?:kkt_|nodes_|run_|check_)[\w.]+)`", text):
        assert (PACKAGE / name).is_file(), name
