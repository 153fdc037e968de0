# ruff: noqa: E501  (Chinese counts twice)
"""The text of every figure block, in English and Chinese. Numbers come from figure_data.py only; none is typed here."""
from __future__ import annotations

import math

from . import figure_data as data

POINT = (1, 16384, 8, 128)  # the shape of the public comparison
FLA = "FLA fused"


def block(name: str, lang: str) -> str:
    return BLOCKS[name](lang)


def _say(lang: str, en: str, zh: str) -> str:
    return zh if lang == "zh" else en


def _missing(lang: str, what: str, command: str) -> str:
    return _say(lang, f"*Not here yet: {what}; `{command}` makes it.*", f"*尚无数据：{what}，由 `{command}` 生成。*")


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def _shape(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def npu_table(lang: str) -> str:
    rows = data.estimates()
    if not rows:
        return _missing(lang, "npusim", "python -m npusim report --json")
    upstream = "upstream_us" in next(iter(rows.values()))
    head = [_say(lang, "B, T, H, K", "B, T, H, K"), _say(lang, "fused, µs", "融合，µs"),
            _say(lang, "our two calls, µs", "本仓两步，µs")]
    head += [_say(lang, "MindSpeed-MM's two calls, µs", "MindSpeed-MM 两步，µs"), _say(lang, "ratio", "倍数")] if upstream else [
        _say(lang, "ratio", "倍数")]
    head += [_say(lang, "fused, ns per (chunk, head)", "融合，ns/(chunk, head)"),
             _say(lang, "memory floor, µs", "访存下限，µs")]
    body = []
    for shape, row in rows.items():
        other = [f"{row['upstream_us']:.0f}", f"{row['upstream_ratio']:.2f}"] if upstream else [f"{row['ratio']:.2f}"]
        body.append([_shape(shape), f"{row['fused_us']:.0f}", f"{row['unfused_us']:.0f}", *other,
                     f"{row['fused_ns_per_chunk_head']:.0f}", f"{row['hbm_floor_us']:.1f}"])
    report = data.load(data.ESTIMATES)
    note = _say(lang, f"**Estimated** by npusim for {report['target']}, {report['dtype']}, device time of all kernels, "
                "launch gaps left out. Not run on an NPU.",
                f"**估算值**：npusim，{report['target']}，{report['dtype']}，全部 kernel 的设备时间，不含下发间隙；未在 NPU 上运行。")
    return _table(head, body) + "\n\n" + note


def calibration(lang: str) -> str:
    report = data.load(data.ESTIMATES)
    if not report or not report["calibration"]:
        return _missing(lang, "npusim", "python -m npusim report --json --mindspeed-src DIR")
    head = [_say(lang, "B,T,H,HV,K", "B,T,H,HV,K"), _say(lang, "published, µs", "公开实测，µs"),
            _say(lang, "estimated, µs", "估算，µs"), _say(lang, "ratio", "比值")]
    body = [[point["shape"].replace(",", ", "), f"{point['published_us']:.0f}", f"{point['estimated_us']:.0f}",
             f"{point['ratio']:.2f}"] for point in report["calibration"]]
    return _table(head, body)


def h200_table(lang: str) -> str:
    times = data.h200_times()
    if not times:
        return _missing(lang, "H200", "python -m mindspeed_kkt_plugin.bench --device cuda --json")
    names = list(next(iter(times.values())))
    head = ["B, T, H, K"] + [f"{name}, µs" for name in names] + [
        _say(lang, f"{name} / fused", f"{name} / fused") for name in names if name != "fused"]
    body = [[_shape(shape)] + [f"{row[name]:.1f}" for name in names] +
            [f"{row[name] / row['fused']:.2f}" for name in names if name != "fused"] for shape, row in times.items()]
    found = data.h200()
    note = _say(lang, f"**Measured** on {found['device']}, torch {found['torch']}, {found['dtype']}: medians, CUDA graphs.",
                f"**实测**：{found['device']}，torch {found['torch']}，{found['dtype']}，CUDA graph 计时，取中位数。")
    return _table(head, body) + "\n\n" + note


def published_table(lang: str) -> str:
    head = [_say(lang, "device", "器件"), _say(lang, "what", "实现"), "B, T, H, K", "µs", _say(lang, "source", "来源")]
    body = [[row["device"], row["op"], _shape(row["shape"]), f"{row['us']:.0f}", row["source"]] for row in data.published()]
    return _table(head, body)


def a100(lang: str) -> str:
    times, guess = data.h200_times(), data.estimates()
    if not times or not guess:
        return _missing(lang, "H200, npusim", "make docs-figures")
    factor = data.a100_factor()
    name = FLA if FLA in next(iter(times.values())) else next(key for key in next(iter(times.values())) if key != "fused")
    head = ["B, T, H, K", _say(lang, f"{name} on H200, µs (measured)", f"H200 上 {name}，µs（实测）"),
            _say(lang, "A100, µs (scaled)", "A100，µs（折算）"), _say(lang, "0.7 of it: at most, µs", "达到 0.7 的上限，µs"),
            _say(lang, "910B2, µs (estimated)", "910B2，µs（估算）"), _say(lang, "share of an A100", "相当于 A100 的")]
    body = []
    for shape in times:
        if shape in guess:
            # FLA's tuning misses on some shapes; what it does on as much work or more, it can do here.
            best = min(other[name] for peer, other in times.items() if math.prod(peer) >= math.prod(shape))
            there, here = best * factor, guess[shape]["fused_us"]
            body.append([_shape(shape), f"{best:.1f}", f"{there:.0f}", f"{there / 0.7:.0f}", f"{here:.0f}",
                         f"{there / here:.2f}"])
    sms = data.SMS_AND_CLOCK
    note = _say(lang, "Scaled by multiprocessors × boost clock of the two cards, "
                f"{sms['H200'][0]} × {sms['H200'][1]} GHz over {sms['A100'][0]} × {sms['A100'][1]} GHz = {factor:.2f}; "
                "no A100 was measured. FLA's time is its best on any shape with at least as much work.",
                f"折算：两卡的 SM 数 × 加速频率之比，{sms['H200'][0]} × {sms['H200'][1]} GHz 比 {sms['A100'][0]} × "
                f"{sms['A100'][1]} GHz，即 {factor:.2f}；未在 A100 上实测。FLA 的时间取工作量不小于该规格的各规格中的最好值。")
    return _table(head, body) + "\n\n" + note


def numerics(lang: str) -> str:
    found = data.load(data.NUMERICS)
    if not found:
        return _missing(lang, "numerics", "python -m docs.numerics")
    methods = found["methods"]
    head = [_say(lang, "keys", "键")] + [method[lang] for method in methods] + [_say(lang, "rounding to bf16", "仅 bf16 舍入")]
    body = [[row[f"what_{lang}"]] + [_error(row["errors"][method["id"]]) for method in methods] +
            [_error(row["errors"]["bf16"])] for row in found["rows"]]
    note = _say(lang, f"**Measured** on a CPU: worst relative Frobenius error of {found['chunks']} chunks of 64 tokens, K = "
                f"{found['K']}, against forward substitution in float64.",
                f"**实测（CPU）**：{found['chunks']} 个 64 token 的 chunk 中最差的相对 Frobenius 误差，K = {found['K']}，"
                "以 float64 前代为基准。")
    return _table(head, body) + "\n\n" + note


def _error(value) -> str:
    return "NaN/Inf" if value is None else f"{value:.0e}"


def traps(lang: str) -> str:
    found = data.load(data.TRAPS)
    if not found:
        return _missing(lang, "traps", "python -m docs.traps")
    head = [_say(lang, "file", "文件"), _say(lang, "trap", "陷阱"), _say(lang, "what the compiler gave", "编译结果"),
            _say(lang, "way out", "规避写法的结果")]
    body = [[f"[{row['id']}](../traps/{row['id']}.py)", row[f"title_{lang}"], row["bad"], row["good"]]
            for row in found["traps"]]
    return _table(head, body) + "\n\n" + _say(lang, f"Compiled with {found['compiler']}.", f"编译器：{found['compiler']}。")


def resources(lang: str) -> str:
    found = data.load(data.RESOURCES)
    if not found:
        return _missing(lang, "resources", "python -m npusim resources --op fused --json")
    head = ["kernel", "UB", "L1", "L0C", _say(lang, "vector cores", "vector 核"),
            _say(lang, "cube instructions and waits a task", "每任务 cube 指令与等待"),
            _say(lang, "vector instructions and waits a task", "每任务 vector 指令与等待")]
    body = []
    for one in found:
        shares = [f"{one['used_bits'].get(part, 0) / one['limit_bits'][part]:.0%}" for part in ("UB", "L1", "L0C")]
        counts = {core: f"{row['cube' if core == 'AIC' else 'vector']}, {row['waits']}" for core, row in one["per_task"].items()}
        body.append([one["name"], *shares, one["split"], counts.get("AIC", "-"), counts.get("AIV", "-")])
    note = _say(lang, "Read from the program compiled for Ascend910B2; loops of several rounds inside a task count once.",
                "取自为Ascend910B2编译的程序；任务内多轮循环只计一次。")
    return _table(head, body) + "\n\n" + note


def summary(lang: str) -> list[str]:
    """One sentence per kind of figure, each with its label."""
    out = []
    row = data.estimates().get(POINT)
    if row:
        words = {"en": f"Estimated (npusim, 910B2, bf16) at B,T,H,K = {_shape(POINT)}: fused {row['fused_us']:.0f} µs, "
                       f"our two calls {row['unfused_us']:.0f} µs",
                 "zh": f"估算（npusim，910B2，bf16），B,T,H,K = {_shape(POINT)}：融合 {row['fused_us']:.0f} µs，"
                       f"本仓两步 {row['unfused_us']:.0f} µs"}
        extra = (_say(lang, f", MindSpeed-MM's two calls {row['upstream_us']:.0f} µs",
                      f"，MindSpeed-MM 两步 {row['upstream_us']:.0f} µs") if "upstream_us" in row else "")
        out.append(words[lang] + extra + _say(lang, ".", "。"))
    point = {row["op"]: row["us"] for row in data.published() if row["shape"] == POINT}
    if point:
        out.append(_say(lang, f"Published (msprof, 910B) at {_shape(POINT)}: ",
                        f"公开实测（msprof，910B），{_shape(POINT)}：")
                   + _say(lang, ", ", "，").join(f"{op} {us:.0f} µs" for op, us in point.items()) + _say(lang, ".", "。"))
    found = data.h200()
    if found:
        means = next(iter(found["geometric_mean"].values()))
        said = _say(lang, ", ", "，").join(f"{name} / fused = {value:.2f}" for name, value in means.items())
        out.append(_say(lang, f"Measured ({found['device']}, {found['dtype']}), geometric mean over "
                        f"{len(found['shapes'])} shapes: {said}.",
                        f"实测（{found['device']}，{found['dtype']}），{len(found['shapes'])} 个规格的几何平均：{said}。"))
    return out or [_missing(lang, "docs/data", "make docs-figures")]


def highlights(lang: str) -> str:
    return "\n".join(f"* {line}" for line in summary(lang))


def _runs(lang: str) -> str:
    found = data.load(data.ASCEND_RUNS)
    if not found:
        return _missing(lang, "runs", "python -m docs.ascend_runs")
    runs = found["runs"]
    sound = sum(run["sound"] for run in runs)
    return _say(lang, f"compiled program executed by npusim: {sound} of {len(runs)} runs within the bound and without a fault",
                f"npusim 执行编译产物：{len(runs)} 次运行中 {sound} 次误差合格且无故障")


def ascend_runs(lang: str) -> str:
    found = data.load(data.ASCEND_RUNS)
    if not found:
        return _missing(lang, "runs", "python -m docs.ascend_runs")
    head = ["B,T,H,HV,K", _say(lang, "type", "类型"), _say(lang, "keys", "键"), _say(lang, "packed", "变长"),
            _say(lang, "worst error", "最大误差"), _say(lang, "bound", "上限"), _say(lang, "faults", "故障")]
    body = [[run["shape"].replace(",", ", "), run["dtype"], run["regime"], str(run["cu_seqlens"] or "-"), _error(run["error"]),
             f"{run['bound']:.0e}", str(len(run["findings"]))] for run in found["runs"]]
    note = _say(lang, f"**Computed** by npusim from the program compiled for {found['target']}: relative Frobenius error of the worst "
                "(chunk, head) against float64. Not run on an NPU.",
                f"由 npusim 执行为 {found['target']} 编译的程序得到：最差（chunk，head）的相对 Frobenius 误差，以 float64 为基准；未在 NPU 上运行。")
    return _table(head, body) + "\n\n" + note


def status(lang: str) -> str:
    def have(found, source_en, source_zh):
        return _say(lang, source_en, source_zh) if found else _say(lang, "not yet", "尚无")

    rows = [
        [_say(lang, "Accuracy, portable kernel", "精度，可移植 kernel"), _say(lang, "measured: CPU (interpreter), H200", "实测：CPU（解释器）、H200")],
        [_say(lang, "Accuracy, Ascend kernel", "精度，昇腾 kernel"),
         _runs(lang)],
        [_say(lang, "Speed on H200", "H200 性能"), have(data.h200(), "measured", "实测")],
        [_say(lang, "Speed on 910B2", "910B2 性能"), have(data.estimates(), "**estimated** (npusim)", "**估算**（npusim）")],
        [_say(lang, "Run on an Ascend NPU", "在昇腾 NPU 上运行"), _say(lang, "**not yet**: no device was available", "**尚未**：开发环境无 NPU")],
        [_say(lang, "MindSpeed-LLM, MindSpeed-MM", "MindSpeed-LLM、MindSpeed-MM"),
         _say(lang, "real forwards and start-ups, on a CPU with stubs", "真实前向与启动流程，CPU 打桩运行")],
    ]
    return _table([_say(lang, "what", "项目"), _say(lang, "state", "状态")], rows)


BLOCKS = {"npu-table": npu_table, "calibration": calibration, "h200-table": h200_table, "published": published_table,
          "a100": a100, "numerics": numerics, "traps": traps, "resources": resources, "ascend-runs": ascend_runs, "highlights": highlights, "status": status}
