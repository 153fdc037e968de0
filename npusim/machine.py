"""Numbers of the machines that npusim knows, each with where it comes from. Nothing is computed here.

A source in the words "fitted" or "assumed" means that no public text states the number. `sources()` lists them all.
"""
from __future__ import annotations

from dataclasses import dataclass, fields

from .errors import UnsupportedError

SPEC = "Ascend/AscendNPU-IR bishengir/include/bishengir/Dialect/HACC/Targets/NPUTargetSpec.td"
INI = "Ascend910B2.ini [AICoreSpec] as quoted in huawei-csl/pto-kernels (agent guide)"
PIPE = "hicann/pypto framework/src/cost_model/simulation_ca/A2A3/model/pipe.{h,cpp}, def.h (the vendor's A2/A3 model)"
GM = "hicann/pypto framework/src/cost_model/simulation_ca/A2A3/SimulatorA2A3.cpp"
TEMPLATE = "Ascend/AscendNPU-IR bishengir/lib/Template (instructions that an op expands to)"


@dataclass(frozen=True)
class Number:
    """A value, its unit, and where it comes from."""

    value: float
    unit: str
    source: str

    @property
    def is_fitted(self) -> bool:
        """True where no public text states the value."""
        return self.source.startswith(("fitted", "assumed"))


@dataclass(frozen=True)
class Machine:
    """One target. Cycles are core cycles; bytes per cycle are of one core."""

    cube_cores: Number
    vector_cores: Number
    clock_ghz: Number = Number(1.8, "GHz", INI)
    scalar_op: Number = Number(2, "cycles", f"{PIPE}: CalcAlu")
    scalar_memory: Number = Number(6, "cycles", f"{PIPE}: CalcLd")
    issue: Number = Number(10, "cycles", "assumed: scalar work that builds an instruction's registers")
    queue_depth: Number = Number(32, "instructions", f"{PIPE}: isqMaxOtsd_")
    vector_bytes: Number = Number(256, "bytes/cycle", f"{PIPE}: vecRptSize; AscendC: 256 B a repeat")
    vector_latency: Number = Number(15, "cycles", f"{PIPE}: vecDelay_, before each instruction's own delay")
    vector_head: Number = Number(4, "cycles", "assumed: start of an instruction in the V pipe, not overlapped")
    gm_read_latency: Number = Number(307, "cycles", GM)
    gm_write_latency: Number = Number(153, "cycles", GM)
    gm_bytes: Number = Number(87, "bytes/cycle", f"{PIPE}: ddrRdBandWidth_, ddrWrBandWidth_")
    gm_burst: Number = Number(6, "cycles", "assumed: least time of one row of a strided transfer")
    l1_write_bytes: Number = Number(256, "bytes/cycle", f"{PIPE}: l1WrBandWidth_")
    ub_move_bytes: Number = Number(256, "bytes/cycle", f"{PIPE}: CalcMovUbUb")
    l0a_bytes: Number = Number(256, "bytes/cycle", f"{PIPE}: l0aWrBandWidth_")
    l0b_bytes: Number = Number(128, "bytes/cycle", f"{PIPE}: l0bWrBandWidth_")
    l0_latency: Number = Number(43, "cycles", f"{PIPE}: load3dUeLatency_ + l1DataPath")
    mmad_latency: Number = Number(20, "cycles", f"{PIPE}: cubeStateLatency_")
    mmad_k_16bit: Number = Number(16, "k/cycle", f"{PIPE}: CUBE_PE_TAB (16x16 outputs a step)")
    mmad_k_fp32: Number = Number(4, "k/cycle", f"{PIPE}: CUBE_PE_TAB")
    mmad_k_hf32: Number = Number(8, "k/cycle", "Ascend/AscendNPU-IR HIVMMacroOps.td: HF32 doubles fp32 mmad")
    fixpipe_bytes: Number = Number(87, "bytes/cycle", f"{PIPE}: CalcFixL0cOut, row by row")
    flag: Number = Number(4, "cycles", "assumed: from set_flag to the waiting pipe")
    barrier: Number = Number(2, "cycles", "assumed: pipe_barrier beyond waiting for the pipe to drain")
    cross_core: Number = Number(220, "cycles", "fitted: sync_block_set to sync_block_wait, earlier estimate")
    hbm_tbytes: Number = Number(1.6, "TB/s", "vendor's nominal figure for 64 GB parts")
    l2_over_hbm: Number = Number(5, "x", "ascend-boost-comm example/ops/include/hardware.h: l2BW over hbmBW")
    l2_bytes: Number = Number(201326592, "bytes", "CANN tiling tests for 910B: L2_SIZE")
    block_start_us: Number = Number(1.0, "us", "assumed: start of a block on a core (each wave pays it)")
    kernel_start_us: Number = Number(3.0, "us", "assumed: device time of an empty kernel")
    launch_us: Number = Number(20.0, "us", "assumed: host gap of one eager launch ('tens of us'); not device time")


def _cores(cube: int) -> dict[str, Number]:
    return {"cube_cores": Number(cube, "cores", SPEC), "vector_cores": Number(2 * cube, "cores", SPEC)}


TABLE: dict[str, Machine] = {
    **{f"Ascend{name}": Machine(**_cores(24))
       for name in ("910B1", "910B2", "910B2C", "910_9381", "910_9382", "910_9391", "910_9392")},
    **{f"Ascend{name}": Machine(**_cores(20)) for name in ("910B3", "910B4", "910_9362", "910_9363", "910_9372")},
}


def machine(target: str) -> Machine:
    """The machine of `target`; UnsupportedError names the known ones."""
    if target not in TABLE:
        raise UnsupportedError(f"target {target!r} is not known; known: {', '.join(TABLE)}")
    return TABLE[target]


def sources(target: str = "Ascend910B2") -> list[tuple[str, float, str, str]]:
    """(name, value, unit, source) of every number of a target."""
    found = machine(target)
    return [(f.name, n.value, n.unit, n.source) for f in fields(found) for n in [getattr(found, f.name)]]
