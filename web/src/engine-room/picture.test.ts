import { describe, expect, it } from "vitest";
import { wirePicture } from "./example";
import { CACHED, HELD, countState, holdersOf, requestColour, toPicture } from "./picture";

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
});
