import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket } from "../protocol/fake-socket";
import { wirePicture } from "./example";
import { EngineRoom } from "./room.svelte";

describe("EngineRoom", () => {
  let room: EngineRoom;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("WebSocket", FakeSocket);
    FakeSocket.opened = [];
    room = new EngineRoom("ws://here/v1/engine/live");
    room.open();
    FakeSocket.last.accept();
  });

  afterEach(() => {
    room.close();
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  const say = (time: number): void => FakeSocket.last.say(wirePicture(time));
  const shown = (): number | undefined => room.picture?.gauges.waste;

  it("shows each picture as it comes, and asks for more than four a second", () => {
    expect(FakeSocket.last.sent).toEqual([{ type: "engine.rate", hz: 5 }]);
    say(1);
    say(2);
    expect(shown()).toBe(2);
  });

  it("stands still when paused, goes back, and comes back to now", () => {
    [1, 2].forEach(say);
    room.pause();
    say(3);
    expect(shown()).toBe(2);
    room.seek(0);
    expect(shown()).toBe(1);
    room.goLive();
    expect(shown()).toBe(3);
  });

  it("plays at a quarter of the speed in slow motion, and misses nothing", () => {
    say(1);
    room.slowDown();
    [2, 3].forEach(say);
    vi.advanceTimersByTime(800);
    expect(shown()).toBe(2);
    vi.advanceTimersByTime(800);
    expect(shown()).toBe(3);
  });

  it("plays a saved recording, which live pictures do not disturb", () => {
    [1, 2].forEach(say);
    const file = room.save();
    expect(room.play("nonsense")).toBe(false);
    expect(room.play(file)).toBe(true);
    say(9);
    vi.advanceTimersByTime(200);
    expect([shown(), room.mode]).toEqual([2, "replay"]);
    vi.advanceTimersByTime(200);
    expect(room.mode).toBe("paused");
    room.goLive();
    say(10);
    expect(shown()).toBe(10);
  });

  it("asks for the demonstration, and comes back to now for it", () => {
    say(1);
    room.pause();
    room.demonstrate(true);
    expect([room.mode, FakeSocket.last.sent.at(-1)]).toEqual(["live", { type: "engine.demonstrate", on: true }]);
    room.demonstrate(false);
    expect(FakeSocket.last.sent.at(-1)).toEqual({ type: "engine.demonstrate", on: false });
  });

  it("asks about a block and keeps the answer", () => {
    room.inspect(3);
    expect(FakeSocket.last.sent.at(-1)).toEqual({ type: "engine.inspect", block: 3 });
    FakeSocket.last.say({ type: "engine.block", block: 3, key: "ab", num_references: 0, age_steps: 5 });
    expect(room.inspected).toMatchObject({ block: 3, age_steps: 5 });
  });
});
