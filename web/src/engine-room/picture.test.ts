import { describe, expect, it } from "vitest";
import { wirePicture } from "./example";
import { CACHED, HELD, countState, holdersOf, requestColour, sightsOf, toPicture } from "./picture";

describe("toPicture", () => {
  it("finds who holds each block, and the first of those who share it", () => {
    const picture = toPicture(wirePicture());
    expect([...picture.owners]).toEqual([1, 1, 2, 0, 0]);
    expect(holdersOf(picture, 0).map(({ request_id }) => request_id)).toEqual(["a", "b"]);
    expect([countState(picture.states, HELD), countState(picture.states, CACHED)]).toEqual([3, 1]);
  });

  it("gives a request the same colour in each picture, and different ones to different requests", () => {
    expect(requestColour("a")).toBe(requestColour("a"));
    expect(requestColour("a")).not.toBe(requestColour("b"));
  });

  it("finds whose blocks wait in the CPU pool", () => {
    const wire = wirePicture();
    wire.trace.requests[1]!.swap_tables = [[1]];
    expect([...toPicture(wire).swapOwners]).toEqual([0, 2]);
  });

  it("counts what the engine room explains", () => {
    const wire = wirePicture();
    const step = { number: 1, duration_s: 0, shares: [], preempted: [], num_copied: 2, num_swapped_out: 0, num_swapped_in: 0 };
    wire.trace.steps = [step, { ...step, number: 2, num_copied: 1 }];
    wire.gauges.num_recompute_preemptions = 4;
    expect(sightsOf(toPicture(wire))).toEqual({ scattered: 1, shared: 1, copied: 3, preempted: 4 });
  });
});
