"""Numbers of the machines that npusim knows, each with where it comes from. Nothing is computed here.

A source in the words "fitted" or "assumed" means that no public text states the number. `sources()` lists them all.
"""
from __future__ import annotations

from dataclasses import dataclass, fields

from .backend import TARGETS
from .errors import UnsupportedError

SPEC = "Ascend/AscendNPU-IR bishengir/include/bishengir/Dialect/HACC/Targets/NPUTargetSpec.td"
PIPE = "hicann/pypto framework/src/cost_model/simulation_ca/A2A3/model/pipe.{h,cpp}, def.h (the vendor's A2/A3 model)"
GM = "hicann/pypto framework/src/cost_model/simulation_ca/A2A3/SimulatorA2A3.cpp"
COPY = "CANN asc-devkit, DataCopy best practice README, measured on A2/A3"
ADD = "CANN asc-devkit, 00_add_high_performance README, measured on A2"
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
    clock_ghz: Number = Number(1.85, "GHz", f"{ADD}; total cycles over time in the DataCopy README agree")
    scalar_op: Number = Number(2, "cycles", f"{PIPE}: CalcAlu")
    scalar_memory: Number = Number(6, "cycles", f"{PIPE}: CalcLd")
    issue: Number = Number(40, "cycles", "fitted: scalar work of an op's library call, to the two published points")
    queue_depth: Number = Number(32, "instructions", f"{PIPE}: isqMaxOtsd_")
    vector_bytes: Number = Number(256, "bytes/cycle", f"{PIPE}: vecRptSize; AscendC: 256 B a repeat")
    vector_latency: Number = Number(15, "cycles", f"{PIPE}: vecDelay_, before each instruction's own delay")
    vector_head: Number = Number(1, "cycles", f"{ADD}: a dependent op takes 22 beyond its repeats, delays included")
    vector_step: Number = Number(12, "cycles", "assumed: least time of an instruction in a loop of the op library")
    transpose_setup: Number = Number(64, "cycles", "assumed: 32 addresses of a vnchwconv, one scalar operation each")
    bank_groups: Number = Number(16, "32-byte columns", f"{ADD}: two sources in the same bank groups halve the rate")
    gm_read_latency: Number = Number(500, "cycles", f"{ADD}, case 1: two 8 KB loads in 701 cycles of MTE2, less bytes")
    l2_read_latency: Number = Number(307, "cycles", f"{GM}; used for workspace, which was just written")
    gm_write_latency: Number = Number(153, "cycles", GM)
    gm_bytes: Number = Number(87, "bytes/cycle", f"{PIPE}: ddrRdBandWidth_, ddrWrBandWidth_")
    gm_burst: Number = Number(5.3, "cycles", f"{COPY}: a row of a strided transfer, 64 rows of 128 B in 341 cycles")
    gm_issue: Number = Number(20, "cycles", f"{COPY}: least time of a transfer, 49152 copies of 128 B in 548 us a core")
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
    cross_core: Number = Number(400, "cycles", "fitted: sync_block_set to sync_block_wait, to the two published points")
    hbm_tbytes: Number = Number(1.49, "TB/s", f"{COPY}: reached GM->UB with 48 cores (nominal 1.8)")
    l2_tbytes: Number = Number(5.2, "TB/s", f"{COPY}: L2 peak")
    l2_bytes: Number = Number(201326592, "bytes", "CANN tiling tests for 910B: L2_SIZE")
    block_start_us: Number = Number(1.0, "us", "assumed: start of a block on a core (each wave pays it)")
    kernel_start_us: Number = Number(9.0, "us", f"{COPY}: Task Duration less core time, 6 to 12 us")
    launch_us: Number = Number(20.0, "us", "assumed: host gap of one eager launch ('tens of us'); not device time")


def _cores(cube: int) -> dict[str, Number]:
    return {"cube_cores": Number(cube, "cores", SPEC), "vector_cores": Number(2 * cube, "cores", SPEC)}


TABLE: dict[str, Machine] = {target: Machine(**_cores(cube)) for target, cube in TARGETS.items()}


def machine(target: str) -> Machine:
    """The machine of `target`; UnsupportedError names the known ones."""
    if target not in TABLE:
        raise UnsupportedError(f"target {target!r} is not known; known: {', '.join(TABLE)}")
    return TABLE[target]


def sources(target: str = "Ascend910B2") -> list[tuple[str, float, str, str]]:
    """(name, value, unit, source) of every number of a target."""
    found = machine(target)
    return [(f.name, n.value, n.unit, n.source) for f in fields(found) for n in [getattr(found, f.name)]]
