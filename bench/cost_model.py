"""A clock for machines that are not here: how long a step takes on a given model and accelerator.

A step reads all weights and the keys and values of every running sequence, and computes two operations per weight and
token; whichever takes longer sets the pace. Both speeds are the vendor's peak times an efficiency that well-written
kernels reach. Blocks that move between device and CPU memory take their bytes over the bus.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from bench.simulation import RandomTokens
from engine.plan import Plan, StepResult

_COMPUTE_EFFICIENCY = 0.5
_BANDWIDTH_EFFICIENCY = 0.8
_COPY_S = 5e-6
"""To start one copy. A block's keys and values of all layers lie in one piece here, so it takes one."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A model on its accelerators, in float16.

    Attributes:
        num_parameters: of the model.
        kv_bytes_per_token: keys and values of one token, all layers.
        num_slots: tokens that the memory left for keys and values holds; table 1 of the paper.
        flop_per_s, bytes_per_s: peak of all accelerators together.
        bus_bytes_per_s: to CPU memory and back.
        overhead_s: of a step, whatever its size.
    """

    name: str
    num_parameters: float
    kv_bytes_per_token: int
    num_slots: int
    flop_per_s: float
    bytes_per_s: float
    bus_bytes_per_s: float
    overhead_s: float

    def step_s(self, num_tokens: int, num_context_tokens: int) -> float:
        """Seconds of a forward pass over new tokens, with so many tokens of context to read."""
        compute_s = 2 * self.num_parameters * num_tokens / (self.flop_per_s * _COMPUTE_EFFICIENCY)
        num_bytes = 2 * self.num_parameters + self.kv_bytes_per_token * num_context_tokens
        return max(compute_s, num_bytes / (self.bytes_per_s * _BANDWIDTH_EFFICIENCY)) + self.overhead_s


OPT_13B = Machine("OPT-13B, one A100 40 GB", 13e9, 2 * 40 * 5120 * 2, 15_700, 312e12, 1.555e12, 25e9, 0.003)
OPT_175B = Machine(
    "OPT-175B, eight A100 80 GB", 175e9, 2 * 96 * 12288 * 2, 60_100, 8 * 312e12, 8 * 2.0e12, 8 * 25e9, 0.015
)


class SimulatedMachine(RandomTokens):
    """Draws random tokens and says how long the machine would have taken."""

    def __init__(self, machine: Machine, block_size: int, source: Random) -> None:
        super().__init__(source)
        self._machine = machine
        self._block_bytes = block_size * machine.kv_bytes_per_token

    def run(self, plan: Plan) -> StepResult:
        result = super().run(plan)
        num_tokens = sum(len(row.token_ids) for row in plan.rows)
        num_context_tokens = sum(row.start + len(row.token_ids) for row in plan.rows)
        copy_s = _COPY_S + self._block_bytes / self._machine.bus_bytes_per_s
        transfer_s = plan.transfers.num_swapped * copy_s
        return StepResult(result.drawn, {}, transfer_s, self._machine.step_s(num_tokens, num_context_tokens), 0.0)
