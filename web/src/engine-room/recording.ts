/** Pictures in the order in which they came, as text: to look back, to save, and to play again. */

const FORMAT = "chatsrv.engine-recording";

/** Minutes of a small engine, seconds of one with a hundred thousand blocks. */
export const MAX_CHARACTERS = 40_000_000;

export class Recording {
  readonly frames: string[];
  #numCharacters: number;

  constructor(frames: string[] = []) {
    this.frames = frames;
    this.#numCharacters = frames.reduce((sum, { length }) => sum + length, 0);
  }

  /** Where there is no more room the oldest frames go; answers how many. */
  push(frame: string): number {
    this.frames.push(frame);
    this.#numCharacters += frame.length;
    let numLost = 0;
    for (; this.#numCharacters > MAX_CHARACTERS && this.frames.length > 1; numLost += 1) {
      this.#numCharacters -= this.frames.shift()!.length;
    }
    return numLost;
  }

  /** One JSON object a line, the first of which says what the file is. */
  toFile(): string {
    return [JSON.stringify({ format: FORMAT, version: 1 }), ...this.frames].join("\n");
  }

  /** null where the text is no recording. */
  static fromFile(text: string): Recording | null {
    const [head, ...frames] = text.split("\n").filter((line) => line !== "");
    try {
      if (JSON.parse(head ?? "").format !== FORMAT) return null;
      return frames.every((frame) => JSON.parse(frame).type === "engine.snapshot") ? new Recording(frames) : null;
    } catch {
      return null;
    }
  }
}
