# ruff: noqa: E501  (Chinese counts twice)
"""Figure blocks about the GPU: what was measured on an H200, ATK's cases there, and the A100 that it is scaled to.

Numbers come from figure_data.py; none is typed here.
"""
from __future__ import annotations

from statistics import geometric_mean, median

from . import figure_data as data
from .figure_text import missing, numbers, say, table

FLA = "FLA fused"
ENOUGH = 0.7  # of an A100's speed: what upstream's challenge asks for


def _name(name: str, lang: str) -> str:
    """FLA's ways keep their names; ours is named by its kernel, which is not the one for Ascend."""
    return say(lang, "portable kernel", "可移植 kernel") if name == "fused" else name


def h200_table(lang: str) -> str:
    times = data.h200_times()
    if not times:
        return missing(lang, "H200", "python -m mindspeed_kkt_plugin.bench --device cuda --json")
    names = list(next(iter(times.values())))
    head = ["B, T, H, K"] + [f"{_name(name, lang)}, µs" for name in names] + [
        f"{name} / {_name('fused', lang)}" for name in names if name != "fused"]
    body = [[numbers(shape)] + [f"{row[name]:.1f}" for name in names] +
            [f"{row[name] / row['fused']:.2f}" for name in names if name != "fused"] for shape, row in times.items()]
    found = data.h200()
    clock = {"graph": say(lang, "CUDA graphs", "CUDA graph 计时")}.get(data.clock(found), data.clock(found))
    note = say(lang, f"**Measured** on {found['device']}, torch {found['torch']}, {found['dtype']}: medians, {clock}, so no host time.",
               f"**实测**：{found['device']}，torch {found['torch']}，{found['dtype']}，{clock}，取中位数，不含主机时间。")
    note += say(lang, " One run, FLA tuned anew for each shape.", "一次运行，FLA对每个规格重新调优。")
    return table(head, body) + "\n\n" + note + _host(lang)


def _host(lang: str) -> str:
    """What an eager call costs the host, where the bench has that clock."""
    times = data.h200_times("host")
    if not times or FLA not in next(iter(times.values())):
        return ""
    usual = {name: median(row[name] for row in times.values()) for name in next(iter(times.values()))}
    listed = {FLA: say(lang, "a bare launch of FLA's kernel with its zero fill", "直接下发 FLA 的 kernel（含清零）"),
              "FLA two calls": say(lang, "FLA's two calls", "FLA 的两步")}
    others = say(lang, ", ", "，").join(f"{listed[name]} {us:.0f} µs" for name, us in usual.items() if name in listed)
    return "\n\n" + say(
        lang, f"Time of the **host** per eager call, also measured, median over the shapes: this operator {usual['fused']:.0f} µs (checks, "
        f"choice of path, Triton's launch), {others}. Where the host is the limit, an eager call of the operator is slower than "
        "that launch, whatever the device does.",
        f"**主机**每次eager调用的时间（同为实测，取各规格的中位数）：本算子 {usual['fused']:.0f} µs（检查、选路、Triton下发），{others}。"
        "受主机限制时，本算子的eager调用慢于直接下发FLA的kernel，与设备时间无关。")


def h200_sentence(lang: str) -> str:
    """The headline, or nothing."""
    found, times = data.h200(), data.h200_times()
    if not times:
        return ""
    names = [name for name in next(iter(times.values())) if name != "fused"]
    means = {name: geometric_mean(row[name] / row["fused"] for row in times.values()) for name in names}
    said = say(lang, ", ", "，").join(f"{name} {value:.2f}" for name, value in means.items())
    clock = {"graph": "CUDA graphs"}.get(data.clock(found), data.clock(found))
    return say(lang, f"Measured ({found['device']}, {found['dtype']}, {clock}): device time over that of our portable kernel (not the Ascend kernel), "
               f"geometric mean over {len(times)} shapes: {said}.",
               f"实测（{found['device']}，{found['dtype']}，{clock}）：设备时间与本仓可移植kernel（不是昇腾kernel）之比，{len(times)} 个规格的几何平均：{said}。")


def _a100_rows() -> dict[tuple[int, ...], tuple[float, float, float]]:
    """(B, T, H, K) → FLA's µs on the H200, scaled to an A100, estimated on 910B2."""
    times, guess, factor = data.h200_times(), data.estimates(), data.a100_factor()
    return {shape: (row[FLA], row[FLA] * factor, guess[shape]["fused_us"]) for shape, row in times.items()
            if shape in guess and FLA in row}


def a100(lang: str) -> str:
    rows = _a100_rows()
    if not rows:
        return missing(lang, "H200, npusim", "make docs-figures")
    head = ["B, T, H, K", say(lang, f"{FLA} on H200, µs (measured)", f"H200 上 {FLA}，µs（实测）"),
            say(lang, "A100, µs (scaled)", "A100，µs（折算）"),
            say(lang, f"{ENOUGH} of it: at most, µs", f"达到 {ENOUGH} 的上限，µs"),
            say(lang, "910B2, µs (estimated)", "910B2，µs（估算）"), say(lang, "share of an A100", "相当于 A100 的")]
    body = [[numbers(shape), f"{fla:.1f}", f"{there:.0f}", f"{there / ENOUGH:.0f}", f"{here:.0f}", f"{there / here:.2f}"]
            for shape, (fla, there, here) in rows.items()]
    sms = data.SMS_AND_CLOCK
    note = say(lang, "Scaled by multiprocessors × boost clock of the two cards, "
               f"{sms['H200'][0]} × {sms['H200'][1]} GHz over {sms['A100'][0]} × {sms['A100'][1]} GHz = "
               f"{data.a100_factor():.2f}; no A100 was measured.",
               f"折算：两卡的 SM 数 × 加速频率之比，{sms['H200'][0]} × {sms['H200'][1]} GHz 比 {sms['A100'][0]} × "
               f"{sms['A100'][1]} GHz，即 {data.a100_factor():.2f}；未在 A100 上实测。")
    return table(head, body) + "\n\n" + note


def a100_sentence(lang: str) -> str:
    """Range of the share of an A100 and how often it is enough, or nothing."""
    shares = [there / here for _, there, here in _a100_rows().values()]
    if not shares:
        return ""
    enough = sum(share >= ENOUGH for share in shares)
    return say(lang, f"Estimated against an A100 that was scaled from FLA's fused kernel on the H200, not measured: {min(shares):.2f} to "
               f"{max(shares):.2f} of its speed; {ENOUGH} or more on {enough} of {len(shares)} shapes.",
               f"估算值与A100相比（由H200上FLA融合kernel折算，未实测A100）：为其速度的 {min(shares):.2f} 至 {max(shares):.2f}，"
               f"{len(shares)} 个规格中 {enough} 个达到 {ENOUGH}。")


def _atk_accuracy(lang: str) -> tuple[str, list[dict]]:
    """How many cases pass ATK's rule, and those that do not; "" where none ran."""
    rows = data.table(data.ATK_ACCURACY)
    missed = [row for row in rows if row["passed"] != "True"]
    good = len(rows) - len(missed)
    return (say(lang, f"{good} of {len(rows)}", f"{len(rows)} 条中 {good} 条") if rows else ""), missed


def atk_state(lang: str) -> str:
    """One cell of the status table."""
    counted, missed = _atk_accuracy(lang)
    if not counted:
        return say(lang, "not yet", "尚无")
    names = say(lang, ", ", "、").join(f"`{row['case']}`" for row in missed)
    beyond = say(lang, f"; not {names}", f"；未通过：{names}") if missed else ""
    return say(lang, f"measured on H200, without ATK: {counted} within ATK's rule{beyond}",
               f"H200 实测（未用 ATK 本身）：{counted}满足 ATK 规则{beyond}")


def atk(lang: str) -> str:
    rows = data.table(data.ATK_PERFORMANCE)
    counted, missed = _atk_accuracy(lang)
    if not rows or not counted:
        return missing(lang, "ATK, H200", "python atk/chunk_gated_delta_rule_fwd_kkt_solve/run_local.py")
    total = data.atk_cases()
    head = [say(lang, "result", "类型"), say(lang, "timed", "已计时"), say(lang, "least", "最小"),
            say(lang, "geometric mean", "几何平均"), say(lang, "greatest", "最大")]
    groups = {dtype: [row for row in rows if row["case"].startswith(dtype)] for dtype in ("bf16", "fp16", "fp32")}
    body = []
    for name, some in (groups | {say(lang, "all", "全部"): rows}).items():
        ratios = [float(row["ratio"]) for row in some]
        body.append([name, str(len(some)), f"{min(ratios):.2f}", f"{geometric_mean(ratios):.2f}", f"{max(ratios):.2f}"])
    slow = say(lang, f"**Measured** on the H200 with `run_local.py`: our two calls over the fused operator, device time; {len(rows)} of "
               f"{total} cases were timed", f"**实测**（H200，`run_local.py`）：本仓两步与融合算子的设备时间之比；{total} 条用例中 {len(rows)} 条已计时")
    if len(rows) < total:
        slow += say(lang, "; where a call could not keep the device busy, the run counts the case as failed", "；未能使设备保持忙碌的用例记为失败")
    missed_table = table(
        [say(lang, "accuracy case", "精度用例"), say(lang, "largest relative error, in units of the two calls' or 2^-8", "最大相对误差与两步之比（两步不足2^-8时按2^-8）"),
         say(lang, "allowed", "允许")],
        [[row["case"], row["max_re_ratio"], row["max_re_limit"]] for row in missed])
    accuracy = say(lang, f"Accuracy: {counted} cases within `cv_fused_double_benchmark`", f"精度：{counted}满足`cv_fused_double_benchmark`")
    tail = say(lang, ". Not:\n\n", "。未满足：\n\n") + missed_table if missed else say(lang, ".", "。")
    return table(head, body) + "\n\n" + slow + say(lang, ".", "。") + "\n\n" + accuracy + tail
