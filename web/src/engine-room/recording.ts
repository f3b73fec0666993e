/** Pictures in the order in which they came, as text: to look back, to save, and to play again. */

const FORMAT = "chatsrv.engine-recording";

/** Five minutes at four pictures a second. */
export const MAX_FRAMES = 1200;

export class Recording {
  readonly frames: string[];

  constructor(frames: string[] = []) {
    this.frames = frames;
  }

  push(frame: string): void {
    this.frames.push(frame);
    if (this.frames.length > MAX_FRAMES) this.frames.shift();
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
