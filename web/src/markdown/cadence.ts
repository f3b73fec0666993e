/** Paces the drawing of a growing text: at most one drawing per 50 ms, and at most a quarter of the time spent on it. */

const MIN_INTERVAL_MS = 50;
const MAX_LOAD = 0.25;

export interface Cadence {
  /** Something changed: draw at the next good moment. */
  request(): void;
  /** Forget a requested drawing. */
  cancel(): void;
}

export function createCadence(draw: () => void): Cadence {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let frame: number | undefined;
  let nextAt = 0;

  function run(): void {
    timer = frame = undefined;
    const startedAt = performance.now();
    draw();
    const cost = performance.now() - startedAt;
    nextAt = startedAt + Math.max(MIN_INTERVAL_MS, cost / MAX_LOAD);
  }

  return {
    request() {
      if (timer !== undefined || frame !== undefined) return;
      timer = setTimeout(
        () => {
          timer = undefined;
          frame = requestAnimationFrame(run);
        },
        Math.max(0, nextAt - performance.now()),
      );
    },
    cancel() {
      clearTimeout(timer);
      if (frame !== undefined) cancelAnimationFrame(frame);
      timer = frame = undefined;
    },
  };
}
