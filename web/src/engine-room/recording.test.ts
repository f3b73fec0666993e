import { describe, expect, it } from "vitest";
import { wirePicture } from "./example";
import { MAX_CHARACTERS, Recording } from "./recording";

describe("Recording", () => {
  it("comes back from a file as it went", () => {
    const recording = new Recording();
    for (const time of [1, 2]) recording.push(JSON.stringify(wirePicture(time)));
    expect(Recording.fromFile(recording.toFile())?.frames).toEqual(recording.frames);
  });

  it.each(["", "{}", "no json", '{"format":"chatsrv.engine-recording"}\n{"type":"other"}'])("refuses %j", (text) => {
    expect(Recording.fromFile(text)).toBeNull();
  });

  it("loses its oldest frames when it is full", () => {
    const recording = new Recording();
    const half = MAX_CHARACTERS / 2;
    expect(recording.push("a".repeat(half))).toBe(0);
    expect(recording.push("b".repeat(half))).toBe(0);
    expect(recording.push("c")).toBe(1);
    expect(recording.frames.map(([first]) => first)).toEqual(["b", "c"]);
  });
});
