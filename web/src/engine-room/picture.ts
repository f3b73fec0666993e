/** A picture of the engine as it comes over the wire, and as the engine room draws it. */

import type { ServiceTier } from "../protocol/types";

export const FREE = 0;
export const CACHED = 1;
export const HELD = 2;

export interface TracedRequest {
  request_id: string;
  priority: ServiceTier;
  state: "running" | "waiting" | "swapped";
  num_tokens: number;
  num_computed_tokens: number;
  num_preemptions: number;
  /** Physical block of each logical one, for each sequence. */
  block_tables: number[][];
}

export interface TracedStep {
  number: number;
  duration_s: number;
  /** Request, prefill tokens, decode tokens. */
  shares: [string, number, number][];
  preempted: string[];
  num_copied: number;
  num_swapped_out: number;
  num_swapped_in: number;
}

export interface Gauges {
  waste: number;
  cache_hit_rate: number;
  prompt_tokens_per_s: number;
  output_tokens_per_s: number;
  num_running: Record<ServiceTier, number>;
  num_waiting: Record<ServiceTier, number>;
  num_swap_preemptions: number;
  num_recompute_preemptions: number;
}

export interface WirePicture {
  type: "engine.snapshot";
  time_s: number;
  trace: {
    block_size: number;
    states: string;
    references: string;
    swap_states: string;
    requests: TracedRequest[];
    steps: TracedStep[];
  };
  gauges: Gauges;
}

export interface EngineBlock {
  type: "engine.block";
  block: number;
  key: string | null;
  num_references: number;
  age_steps: number;
}

export interface Picture {
  blockSize: number;
  states: Uint8Array;
  references: Uint8Array;
  swapStates: Uint8Array;
  /** For each block the request that holds it, as index + 1; the first one where it is shared; 0 where nobody does. */
  owners: Uint16Array;
  requests: TracedRequest[];
  steps: TracedStep[];
  gauges: Gauges;
}

export function toPicture({ trace, gauges }: WirePicture): Picture {
  const states = fromBase64(trace.states);
  return {
    blockSize: trace.block_size,
    states,
    references: fromBase64(trace.references),
    swapStates: fromBase64(trace.swap_states),
    owners: ownersOf(states.length, trace.requests),
    requests: trace.requests,
    steps: trace.steps,
    gauges,
  };
}

/** How many blocks are in a state. */
export function countState(states: Uint8Array, state: number): number {
  let count = 0;
  for (const value of states) if (value === state) count += 1;
  return count;
}

/** Requests whose block tables name the block. */
export function holdersOf({ requests }: Picture, block: number): TracedRequest[] {
  return requests.filter(({ block_tables }) => block_tables.some((table) => table.includes(block)));
}

/** A colour that belongs to one request for as long as it lives. */
export function requestColour(requestId: string): string {
  let hash = 0;
  for (const character of requestId) hash = (hash * 31 + character.codePointAt(0)!) >>> 0;
  return `hsl(${hash % 360} 55% 58%)`;
}

function ownersOf(numBlocks: number, requests: TracedRequest[]): Uint16Array {
  const owners = new Uint16Array(numBlocks);
  requests.forEach(({ block_tables }, index) => {
    for (const block of block_tables.flat()) owners[block] ||= index + 1;
  });
  return owners;
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
