import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createCadence } from "./cadence";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "requestAnimationFrame", "cancelAnimationFrame", "performance"] });
});

afterEach(() => {
  vi.useRealTimers();
});

describe("createCadence", () => {
  it("draws once for many requests, and at most 20 times a second", () => {
    const draw = vi.fn();
    const cadence = createCadence(draw);
    for (let elapsed = 0; elapsed < 1000; elapsed += 5) {
      cadence.request();
      vi.advanceTimersByTime(5);
    }
    expect(draw.mock.calls.length).toBeGreaterThan(10);
    expect(draw.mock.calls.length).toBeLessThanOrEqual(20);
  });

  it("draws less often when drawing is slow", () => {
    const draw = vi.fn(() => void vi.advanceTimersByTime(100));
    const cadence = createCadence(draw);
    const startedAt = performance.now();
    while (performance.now() - startedAt < 2000) {
      cadence.request();
      vi.advanceTimersByTime(5);
    }
    expect(draw.mock.calls.length).toBeLessThanOrEqual(6);
  });

  it("draws nothing after cancel", () => {
    const draw = vi.fn();
    const cadence = createCadence(draw);
    cadence.request();
    cadence.cancel();
    vi.advanceTimersByTime(1000);
    expect(draw).not.toHaveBeenCalled();
  });
});
