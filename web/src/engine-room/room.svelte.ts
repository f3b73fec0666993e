/**
 * What the engine room shows: the engine as it is now, or as it was a moment ago, or a recording.
 *
 *     live ──pause──▶ paused ──resume──▶ live
 *     live ──slow───▶ slow: plays what comes in at a quarter of its speed, until it is live again
 *     any  ──file───▶ replay ──its end──▶ paused
 */

import { Connection, type ConnectionStatus } from "../protocol/connection";
import { toPicture, type EngineBlock, type Picture, type WirePicture } from "./picture";
import { Recording } from "./recording";

export type Mode = "live" | "paused" | "slow" | "replay";

const PICTURES_PER_S = 5;
const SLOWNESS = 4;

export class EngineRoom {
  status: ConnectionStatus = $state("connecting");
  mode: Mode = $state("live");
  picture: Picture | null = $state.raw(null);
  /** The block that was last asked about. */
  inspected: EngineBlock | null = $state.raw(null);
  position = $state(0);
  numFrames = $state(0);

  readonly #connection: Connection<WirePicture | EngineBlock>;
  #recording = new Recording();
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(address: string) {
    this.#connection = new Connection(address, {
      onStatus: (status) => this.#statusChanged(status),
      onEvent: (event, text) => this.#received(event, text),
    });
  }

  open(): void {
    this.#connection.connect();
  }

  close(): void {
    clearInterval(this.#timer);
    this.#connection.close();
  }

  pause(): void {
    this.#enter("paused");
  }

  /** Back to what happens now; ends a replay. */
  goLive(): void {
    if (this.mode === "replay" || !this.#isLiveRecording) this.#start(new Recording(), true);
    this.#enter("live");
    this.#show(this.numFrames - 1);
  }

  slowDown(): void {
    this.#enter("slow", (1000 / PICTURES_PER_S) * SLOWNESS);
  }

  /** Plays a saved recording; answers whether the text is one. */
  play(text: string): boolean {
    const recording = Recording.fromFile(text);
    if (!recording) return false;
    this.#start(recording, false);
    this.#show(0);
    this.#enter("replay", 1000 / PICTURES_PER_S);
    return true;
  }

  /** Looks at one moment of what is recorded. */
  seek(position: number): void {
    this.#enter("paused");
    this.#show(position);
  }

  save(): string {
    return this.#recording.toFile();
  }

  /** Shows the demonstration from its beginning, or the running engine again. */
  demonstrate(isOn: boolean): void {
    this.goLive();
    this.#connection.send({ type: "engine.demonstrate", on: isOn });
  }

  inspect(block: number): void {
    if (this.#isLiveRecording) this.#connection.send({ type: "engine.inspect", block });
  }

  #isLiveRecording = true;

  #start(recording: Recording, isLive: boolean): void {
    this.#recording = recording;
    this.#isLiveRecording = isLive;
    this.numFrames = recording.frames.length;
    this.inspected = null;
  }

  #enter(mode: Mode, period_ms?: number): void {
    clearInterval(this.#timer);
    this.mode = mode;
    if (period_ms !== undefined) this.#timer = setInterval(() => this.#advance(), period_ms);
  }

  #advance(): void {
    if (this.position + 1 < this.numFrames) this.#show(this.position + 1);
    else if (this.mode === "replay") this.#enter("paused");
  }

  #statusChanged(status: ConnectionStatus): void {
    this.status = status;
    if (status === "open") this.#connection.send({ type: "engine.rate", hz: PICTURES_PER_S });
  }

  #received(event: WirePicture | EngineBlock, text: string): void {
    if (event.type === "engine.block") this.inspected = event;
    else if (event.type === "engine.snapshot" && this.#isLiveRecording) this.#record(event, text);
  }

  #record(picture: WirePicture, text: string): void {
    const numLost = this.#recording.push(text);
    this.numFrames = this.#recording.frames.length;
    if (this.mode === "live") {
      this.position = this.numFrames - 1;
      this.picture = toPicture(picture);
    } else this.position = Math.max(0, this.position - numLost);
  }

  #show(position: number): void {
    const frame = this.#recording.frames[position];
    if (frame === undefined) return;
    this.position = position;
    this.picture = toPicture(JSON.parse(frame) as WirePicture);
  }
}
