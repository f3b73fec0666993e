/** A picture of the engine as it comes over the wire, and as the engine room draws it. */

import type { ServiceTier } from "../protocol/types";

export const FREE = 0;
export const CACHED = 1;
export const HELD = 2;

/** What the demonstration shows at a moment. */
export type Scene = "paging" | "sharing" | "copy_on_write" | "preemption" | "reuse" | "end";

export interface TracedRequest {
  request_id: string;
  priority: ServiceTier;
  state: "running" | "waiting" | "swapped";
  num_tokens: number;
  num_computed_tokens: number;
  num_preemptions: number;
  /** Physical block of each logical one, for each sequence. */
  block_tables: number[][];
  /** The same in the CPU pool, while it is swapped out. */
  swap_tables: number[][];
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
  /** null: this is the running engine. */
  scene: Scene | null;
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
  scene: Scene | null;
  blockSize: number;
  states: Uint8Array;
  references: Uint8Array;
  swapStates: Uint8Array;
  /** For each block the request that holds it, as index + 1; the first one where it is shared; 0 where nobody does. */
  owners: Uint16Array;
  swapOwners: Uint16Array;
  requests: TracedRequest[];
  steps: TracedStep[];
  gauges: Gauges;
}

export function toPicture({ scene, trace, gauges }: WirePicture): Picture {
  const states = fromBase64(trace.states);
  const swapStates = fromBase64(trace.swap_states);
  return {
    scene,
    blockSize: trace.block_size,
    states,
    references: fromBase64(trace.references),
    swapStates,
    owners: ownersOf(states.length, trace.requests.map(({ block_tables }) => block_tables)),
    swapOwners: ownersOf(swapStates.length, trace.requests.map(({ swap_tables }) => swap_tables)),
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

/** How often what the engine room explains is to be seen in a picture. */
export interface Sights {
  /** Requests whose blocks do not lie in a row. */
  scattered: number;
  /** Blocks that several sequences hold. */
  shared: number;
  /** Blocks that were copied before they were written, in the last steps. */
  copied: number;
  /** Preemptions since the engine was started. */
  preempted: number;
}

export function sightsOf({ requests, references, steps, gauges }: Picture): Sights {
  return {
    scattered: requests.filter(({ block_tables }) => block_tables.some(isScattered)).length,
    shared: references.reduce((count, references) => count + Number(references > 1), 0),
    copied: steps.reduce((sum, { num_copied }) => sum + num_copied, 0),
    preempted: gauges.num_swap_preemptions + gauges.num_recompute_preemptions,
  };
}

function isScattered(table: number[]): boolean {
  return table.some((block, place) => place > 0 && block !== table[place - 1]! + 1);
}

const GOLDEN_ANGLE = 137.5;
const numbers = new Map<string, number>();

/** A colour that belongs to one request for as long as the page lives; those that come one after another differ most. */
export function requestColour(requestId: string): string {
  let number = numbers.get(requestId);
  if (number === undefined) numbers.set(requestId, (number = numbers.size));
  return `oklch(0.74 0.13 ${(190 + number * GOLDEN_ANGLE) % 360})`;
}

function ownersOf(numBlocks: number, tablesOfRequests: number[][][]): Uint16Array {
  const owners = new Uint16Array(numBlocks);
  tablesOfRequests.forEach((tables, index) => {
    for (const block of tables.flat()) owners[block] ||= index + 1;
  });
  return owners;
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
