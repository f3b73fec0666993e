import { describe, expect, it } from "vitest";
import { wirePicture } from "./example";
import { MAX_FRAMES, Recording } from "./recording";

describe("Recording", () => {
  it("comes back from a file as it went", () => {
    const recording = new Recording();
    for (const time of [1, 2]) recording.push(JSON.stringify(wirePicture(time)));
    expect(Recording.fromFile(recording.toFile())?.frames).toEqual(recording.frames);
  });

  it.each(["", "{}", "no json", '{"format":"chatsrv.engine-recording"}\n{"type":"other"}'])("refuses %j", (text) => {
    expect(Recording.fromFile(text)).toBeNull();
  });

  it("keeps the last frames only", () => {
    const recording = new Recording();
    for (let number = 0; number < MAX_FRAMES + 5; number += 1) recording.push(String(number));
    expect([recording.frames.length, recording.frames[0]]).toEqual([MAX_FRAMES, "5"]);
  });
});
