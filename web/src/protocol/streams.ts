/**
 * The running responses of one connection, each on a lane of its own.
 *
 * A response outlives its socket: after a reconnect each one is resumed after the last event that was seen, and what
 * is replayed goes through the same door as what is live. Events at or below the last number are dropped, so that a
 * reader sees each event once and in order, whatever happened to the socket in between.
 *
 *     create ─▶ created ─▶ events … ─▶ terminal            lane is free again
 *                  ╰── socket lost ── resume(after last) ──╯
 */

import { Connection, type ConnectionStatus } from "./connection";
import {
  CONNECTION_LOST,
  isTerminal,
  type CreateRequest,
  type ErrorBody,
  type ResponseEvent,
  type ServerEvent,
} from "./types";

/** Responses that one page runs at once; the server allows as many on a socket. */
export const MAX_STREAMS = 16;

/** Reads one response: its events in order, then nothing more, or one failure. */
export interface Reader {
  onEvent(event: ResponseEvent): void;
  /** The request was refused, or its events cannot be had any more. */
  onRefused(error: ErrorBody): void;
}

export interface Stream {
  /** Stop the response: at once, or as soon as the server has told its id. */
  cancel(): void;
  /** Take no more events; the response itself goes on. */
  leave(): void;
}

interface Running {
  lane: string;
  reader: Reader;
  responseId: string | null;
  lastSequenceNumber: number | null;
  mustCancel: boolean;
}

const TOO_MANY: ErrorBody = { code: "too_many_running", message: "" };

export class ResponseStreams {
  readonly #connection: Connection<ServerEvent>;
  readonly #running = new Map<string, Running>();
  readonly #onStatus: (status: ConnectionStatus) => void;

  constructor(address: string, onStatus: (status: ConnectionStatus) => void) {
    this.#onStatus = onStatus;
    this.#connection = new Connection(address, {
      onStatus: (status) => this.#statusChanged(status),
      onEvent: (event) => this.#received(event),
    });
  }

  connect(): void {
    this.#connection.connect();
  }

  close(): void {
    this.#connection.close();
  }

  /** Ask for an answer. */
  create(request: CreateRequest, reader: Reader): Stream {
    const running = this.#start(reader, null);
    if (!running) return refused(reader, TOO_MANY);
    const sent = this.#connection.send({ type: "response.create", stream_id: running.lane, ...request });
    if (!sent) this.#refuse(running, CONNECTION_LOST);
    return this.#handle(running);
  }

  /** Follow a response that is already there, from its first event on. */
  follow(responseId: string, reader: Reader): Stream {
    const running = this.#start(reader, responseId);
    if (!running) return refused(reader, TOO_MANY);
    this.#resume(running);
    return this.#handle(running);
  }

  #start(reader: Reader, responseId: string | null): Running | null {
    const lane = this.#freeLane();
    if (lane === null) return null;
    const running = { lane, reader, responseId, lastSequenceNumber: null, mustCancel: false };
    this.#running.set(lane, running);
    return running;
  }

  #freeLane(): string | null {
    for (let number = 0; number < MAX_STREAMS; number += 1) {
      if (!this.#running.has(`a${number}`)) return `a${number}`;
    }
    return null;
  }

  #handle(running: Running): Stream {
    return {
      cancel: () => {
        running.mustCancel = true;
        this.#cancel(running);
      },
      leave: () => void (running.reader = SILENT),
    };
  }

  #cancel({ responseId }: Running): void {
    if (responseId !== null) this.#connection.send({ type: "response.cancel", response_id: responseId });
  }

  #resume({ lane, responseId, lastSequenceNumber }: Running): void {
    const position = lastSequenceNumber === null ? {} : { starting_after: lastSequenceNumber };
    this.#connection.send({ type: "response.resume", response_id: responseId, stream_id: lane, ...position });
  }

  #statusChanged(status: ConnectionStatus): void {
    if (status === "open") this.#resumeAll();
    if (status === "offline") this.#refuseUnanswered();
    this.#onStatus(status);
  }

  #resumeAll(): void {
    for (const running of this.#running.values()) {
      this.#resume(running);
      if (running.mustCancel) this.#cancel(running);
    }
  }

  /** What the server has not answered may or may not have reached it: nobody will tell any more. */
  #refuseUnanswered(): void {
    for (const running of [...this.#running.values()]) {
      if (running.responseId === null) this.#refuse(running, CONNECTION_LOST);
    }
  }

  #received(event: ServerEvent): void {
    const running = this.#running.get(event.stream_id ?? "");
    if (!running) return;
    if (event.type === "error") this.#refuse(running, event.error);
    else if (event.sequence_number > (running.lastSequenceNumber ?? -1)) this.#deliver(running, event);
  }

  #deliver(running: Running, event: ResponseEvent): void {
    running.lastSequenceNumber = event.sequence_number;
    if (event.type === "response.created") this.#created(running, event.response.id);
    if (isTerminal(event)) this.#running.delete(running.lane);
    running.reader.onEvent(event);
  }

  #created(running: Running, responseId: string): void {
    running.responseId = responseId;
    if (running.mustCancel) this.#cancel(running);
  }

  #refuse(running: Running, error: ErrorBody): void {
    this.#running.delete(running.lane);
    running.reader.onRefused(error);
  }
}

const SILENT: Reader = { onEvent() {}, onRefused() {} };

function refused(reader: Reader, error: ErrorBody): Stream {
  reader.onRefused(error);
  return { cancel() {}, leave() {} };
}
