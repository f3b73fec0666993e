/** A picture for tests: two requests that share their first block. */

import type { WirePicture } from "./picture";

function request(request_id: string, ...block_tables: number[][]): WirePicture["trace"]["requests"][0] {
  const counts = { num_tokens: 40, num_computed_tokens: 40, num_preemptions: 0, swap_tables: [] };
  return { request_id, priority: "default", state: "running", ...counts, block_tables };
}

export function wirePicture(time_s = 0): WirePicture {
  const bytes = (...values: number[]): string => btoa(String.fromCharCode(...values));
  const counts = { priority: 0, default: 2, flex: 0 };
  return {
    type: "engine.snapshot",
    time_s,
    scene: null,
    trace: {
      block_size: 16,
      states: bytes(2, 2, 2, 1, 0),
      references: bytes(2, 1, 1, 0, 0),
      swap_states: bytes(0, 0),
      requests: [request("a", [0, 1]), request("b", [0, 2])],
      steps: [],
    },
    gauges: {
      waste: time_s,
      cache_hit_rate: 0,
      prompt_tokens_per_s: 0,
      output_tokens_per_s: 0,
      num_running: counts,
      num_waiting: counts,
      num_swap_preemptions: 0,
      num_recompute_preemptions: 0,
    },
  };
}
