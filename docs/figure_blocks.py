# ruff: noqa: E501  (Chinese counts twice)
"""The text of every figure block, in English and Chinese. Numbers come from figure_data.py only; none is typed here."""
from __future__ import annotations

from . import figure_data as data
from . import figure_h200 as gpu
from .figure_text import error, missing, numbers, say, table

POINT = (1, 16384, 8, 128)  # the shape of the public comparison


def block(name: str, lang: str) -> str:
    return BLOCKS[name](lang)


def npu_table(lang: str) -> str:
    rows = data.estimates()
    if not rows:
        return missing(lang, "npusim", "python -m npusim report --json")
    upstream = "upstream_us" in next(iter(rows.values()))
    head = [say(lang, "B, T, H, K", "B, T, H, K"), say(lang, "fused, µs", "融合，µs"),
            say(lang, "our two calls, µs", "本仓两步，µs")]
    head += [say(lang, "MindSpeed-MM's two calls, µs", "MindSpeed-MM 两步，µs"), say(lang, "ratio", "倍数")] if upstream else [
        say(lang, "ratio", "倍数")]
    head += [say(lang, "fused, ns per (chunk, head)", "融合，ns/(chunk, head)"),
             say(lang, "memory floor, µs", "访存下限，µs")]
    body = []
    for shape, row in rows.items():
        other = [f"{row['upstream_us']:.0f}", f"{row['upstream_ratio']:.2f}"] if upstream else [f"{row['ratio']:.2f}"]
        body.append([numbers(shape), f"{row['fused_us']:.0f}", f"{row['unfused_us']:.0f}", *other,
                     f"{row['fused_ns_per_chunk_head']:.0f}", f"{row['hbm_floor_us']:.1f}"])
    report = data.load(data.ESTIMATES)
    note = say(lang, f"**Estimated** by npusim for {report['target']}, {report['dtype']}, device time of all kernels, "
                "launch gaps left out. Not run on an NPU.",
                f"**估算值**：npusim，{report['target']}，{report['dtype']}，全部 kernel 的设备时间，不含下发间隙；未在 NPU 上运行。")
    return table(head, body) + "\n\n" + note


def calibration(lang: str) -> str:
    report = data.load(data.ESTIMATES)
    if not report or not report["calibration"]:
        return missing(lang, "npusim", "python -m npusim report --json --mindspeed-src DIR")
    head = [say(lang, "B,T,H,HV,K", "B,T,H,HV,K"), say(lang, "published, µs", "公开实测，µs"),
            say(lang, "estimated, µs", "估算，µs"), say(lang, "ratio", "比值")]
    body = [[point["shape"].replace(",", ", "), f"{point['published_us']:.0f}", f"{point['estimated_us']:.0f}",
             f"{point['ratio']:.2f}"] for point in report["calibration"]]
    return table(head, body)


def published_table(lang: str) -> str:
    head = [say(lang, "device", "器件"), say(lang, "what", "实现"), "B, T, H, K", "µs", say(lang, "source", "来源")]
    body = [[row["device"], row["op"], numbers(row["shape"]), f"{row['us']:.0f}", row["source"]] for row in data.published()]
    return table(head, body)


def numerics(lang: str) -> str:
    found = data.load(data.NUMERICS)
    if not found:
        return missing(lang, "numerics", "python -m docs.numerics")
    methods = found["methods"]
    head = [say(lang, "keys", "键")] + [method[lang] for method in methods] + [say(lang, "rounding to bf16", "仅 bf16 舍入")]
    body = [[row[f"what_{lang}"]] + [error(row["errors"][method["id"]]) for method in methods] +
            [error(row["errors"]["bf16"])] for row in found["rows"]]
    note = say(lang, f"**Measured** on a CPU: worst relative Frobenius error of {found['chunks']} chunks of 64 tokens, K = "
                f"{found['K']}, against forward substitution in float64.",
                f"**实测（CPU）**：{found['chunks']} 个 64 token 的 chunk 中最差的相对 Frobenius 误差，K = {found['K']}，"
                "以 float64 前代为基准。")
    return table(head, body) + "\n\n" + note


def traps(lang: str) -> str:
    found = data.load(data.TRAPS)
    if not found:
        return missing(lang, "traps", "python -m docs.traps")
    head = [say(lang, "file", "文件"), say(lang, "trap", "陷阱"), say(lang, "what the compiler gave", "编译结果"),
            say(lang, "way out", "规避写法的结果")]
    body = [[f"[{row['id']}](../traps/{row['id']}.py)", row[f"title_{lang}"], row["bad"], row["good"]]
            for row in found["traps"]]
    return table(head, body) + "\n\n" + say(lang, f"Compiled with {found['compiler']}.", f"编译器：{found['compiler']}。")


def resources(lang: str) -> str:
    found = data.load(data.RESOURCES)
    if not found:
        return missing(lang, "resources", "python -m npusim resources --op fused --json")
    head = ["kernel", "UB", "L1", "L0C", say(lang, "vector cores", "vector 核"),
            say(lang, "cube instructions and waits a task", "每任务 cube 指令与等待"),
            say(lang, "vector instructions and waits a task", "每任务 vector 指令与等待")]
    body = []
    for one in found:
        shares = [f"{one['used_bits'].get(part, 0) / one['limit_bits'][part]:.0%}" for part in ("UB", "L1", "L0C")]
        counts = {core: f"{row['cube' if core == 'AIC' else 'vector']}, {row['waits']}" for core, row in one["per_task"].items()}
        body.append([one["name"], *shares, one["split"], counts.get("AIC", "-"), counts.get("AIV", "-")])
    note = say(lang, "Read from the program compiled for Ascend910B2 at (1, 16384, 8, 128): 32 lanes a task, no masks. Loops of a number of rounds known then count with all of them, others once; what only some tasks do counts as done.",
                "取自为Ascend910B2在(1, 16384, 8, 128)下编译的程序：每任务32个lane，无掩码。编译时已知轮数的循环按全部轮数计，其余只计一次；只有部分任务执行的内容也计入。")
    return table(head, body) + "\n\n" + note


def summary(lang: str) -> list[str]:
    """One sentence per kind of figure, each with its label."""
    out = [_estimate(lang), _published(lang), gpu.a100_sentence(lang), gpu.h200_sentence(lang)]
    return [one for one in out if one] or [missing(lang, "docs/data", "make docs-figures")]


def _estimate(lang: str) -> str:
    row = data.estimates().get(POINT)
    if not row:
        return ""
    said = say(lang, f"Estimated (npusim, 910B2, bf16) at B,T,H,K = {numbers(POINT)}: fused {row['fused_us']:.0f} µs, "
               f"our two calls {row['unfused_us']:.0f} µs",
               f"估算（npusim，910B2，bf16），B,T,H,K = {numbers(POINT)}：融合 {row['fused_us']:.0f} µs，"
               f"本仓两步 {row['unfused_us']:.0f} µs")
    if "upstream_us" in row:
        said += say(lang, f", MindSpeed-MM's two calls {row['upstream_us']:.0f} µs",
                    f"，MindSpeed-MM 两步 {row['upstream_us']:.0f} µs")
    points = {point["shape"]: point for point in data.load(data.ESTIMATES)["calibration"]}
    B, T, H, K = POINT
    if point := points.get(f"{B},{T},{H},{H},{K}"):
        said += say(lang, f". npusim's {point['estimated_us']:.0f} µs stand for a published {point['published_us']:.0f}: its microseconds are low",
                    f"。npusim的 {point['estimated_us']:.0f} µs对应公开实测 {point['published_us']:.0f} µs：其微秒数偏低")
    return said + say(lang, ".", "。")


def _published(lang: str) -> str:
    point = {row["op"]: row["us"] for row in data.published() if row["shape"] == POINT}
    if not point:
        return ""
    return (say(lang, f"Published (msprof, 910B) at {numbers(POINT)}: ", f"公开实测（msprof，910B），{numbers(POINT)}：")
            + say(lang, ", ", "，").join(f"{op} {us:.0f} µs" for op, us in point.items()) + say(lang, ".", "。"))


def highlights(lang: str) -> str:
    return "\n".join(f"* {line}" for line in summary(lang))


def _runs(lang: str) -> str:
    found = data.load(data.ASCEND_RUNS)
    if not found:
        return missing(lang, "runs", "python -m docs.ascend_runs")
    runs = found["runs"]
    sound = sum(run["sound"] for run in runs)
    return say(lang, f"compiled program executed by npusim: {sound} of {len(runs)} runs within the bound and without a fault",
                f"npusim 执行编译产物：{len(runs)} 次运行中 {sound} 次误差合格且无故障")


def ascend_runs(lang: str) -> str:
    found = data.load(data.ASCEND_RUNS)
    if not found:
        return missing(lang, "runs", "python -m docs.ascend_runs")
    head = ["B,T,H,HV,K", say(lang, "type", "类型"), say(lang, "keys", "键"), say(lang, "packed", "变长"),
            say(lang, "tasks on cores, lanes", "任务数/核数，lane数"), say(lang, "worst error", "最大误差"), say(lang, "bound", "上限"), say(lang, "faults", "故障")]
    body = [[run["shape"].replace(",", ", "), run["dtype"], run["regime"], str(run["cu_seqlens"] or "-"),
             f"{run['tasks']} / {run['cores']}, {run['lanes']}", error(run["error"]), f"{run['bound']:.0e}", str(len(run["findings"]))] for run in found["runs"]]
    note = say(lang, f"**Computed** by npusim from the program compiled for {found['target']}: relative Frobenius error of the worst "
                "(chunk, head) against float64; planned for few cores, so that a core runs several tasks. Not run on an NPU.",
                f"由 npusim 执行为 {found['target']} 编译的程序得到：最差（chunk，head）的相对 Frobenius 误差，以 float64 为基准；按少量核规划，使一个核执行多个任务。未在 NPU 上运行。")
    return table(head, body) + "\n\n" + note


def status(lang: str) -> str:
    def have(found, source_en, source_zh):
        return say(lang, source_en, source_zh) if found else say(lang, "not yet", "尚无")

    rows = [
        [say(lang, "Accuracy, portable kernel", "精度，可移植 kernel"), say(lang, "measured: CPU (interpreter), H200", "实测：CPU（解释器）、H200")],
        [say(lang, "Accuracy, Ascend kernel", "精度，昇腾 kernel"), _runs(lang)],
        [say(lang, "ATK's accuracy cases, portable kernel", "ATK 精度用例，可移植 kernel"), gpu.atk_state(lang)],
        [say(lang, "Speed on H200, portable kernel", "H200 性能，可移植 kernel"), have(data.h200(), "measured", "实测")],
        [say(lang, "Speed on 910B2", "910B2 性能"), have(data.estimates(), "**estimated** (npusim)", "**估算**（npusim）")],
        [say(lang, "Run on an Ascend NPU", "在昇腾 NPU 上运行"), say(lang, "**not yet**: no device was available", "**尚未**：开发环境无 NPU")],
        [say(lang, "MindSpeed-LLM, MindSpeed-MM", "MindSpeed-LLM、MindSpeed-MM"),
         say(lang, "real forwards and start-ups, on a CPU with stubs", "真实前向与启动流程，CPU 打桩运行")],
    ]
    return table([say(lang, "what", "项目"), say(lang, "state", "状态")], rows)


BLOCKS = {
    "npu-table": npu_table, "calibration": calibration, "h200-table": gpu.h200_table, "published": published_table,
    "a100": gpu.a100, "atk": gpu.atk, "numerics": numerics, "traps": traps, "resources": resources,
    "ascend-runs": ascend_runs, "highlights": highlights, "status": status,
}
