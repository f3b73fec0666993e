import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket } from "./fake-socket";
import { MAX_STREAMS, ResponseStreams, type Reader } from "./streams";
import { CONNECTION_LOST, type CreateRequest, type ErrorBody, type ResponseEvent } from "./types";

const request: CreateRequest = { conversation: "conv_1", parent_id: "root", input: "Hi" };

/** Keeps the sequence numbers that it was given, and why it was refused. */
class RecordingReader implements Reader {
  numbers: number[] = [];
  refusal: ErrorBody | null = null;

  onEvent({ sequence_number }: ResponseEvent): void {
    this.numbers.push(sequence_number);
  }

  onRefused(error: ErrorBody): void {
    this.refusal = error;
  }
}

let streams: ResponseStreams;
let reader: RecordingReader;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
  FakeSocket.opened = [];
  streams = new ResponseStreams("ws://here", () => {});
  streams.connect();
  FakeSocket.last.accept();
  reader = new RecordingReader();
});

afterEach(() => {
  streams.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function say(lane: string, number: number, type = "response.output_text.delta"): void {
  FakeSocket.last.say({ type, stream_id: lane, sequence_number: number, delta: "", response: { id: `resp_${lane}` } });
}

function reconnect(): void {
  FakeSocket.last.drop();
  vi.advanceTimersByTime(60_000);
  FakeSocket.last.accept();
}

describe("a running response", () => {
  it("is asked for on a lane of its own", () => {
    streams.create(request, reader);
    streams.create(request, new RecordingReader());
    expect(FakeSocket.last.sent).toEqual([
      { type: "response.create", stream_id: "a0", ...request },
      { type: "response.create", stream_id: "a1", ...request },
    ]);
  });

  it("reaches its own reader only", () => {
    const other = new RecordingReader();
    streams.create(request, reader);
    streams.create(request, other);
    say("a1", 0, "response.created");
    say("a0", 0, "response.created");
    say("a1", 1);
    expect([reader.numbers, other.numbers]).toEqual([[0], [0, 1]]);
  });

  it("goes on after a lost socket, each event once", () => {
    streams.create(request, reader);
    say("a0", 0, "response.created");
    say("a0", 1);
    reconnect();
    expect(FakeSocket.last.sent).toEqual([
      { type: "response.resume", response_id: "resp_a0", stream_id: "a0", starting_after: 1 },
    ]);
    // A server may send more than asked for; and merged deltas skip numbers.
    for (const number of [0, 1, 2, 5, 5, 6]) say("a0", number);
    expect(reader.numbers).toEqual([0, 1, 2, 5, 6]);
  });

  it("is refused when the socket is lost before the server answered", () => {
    streams.create(request, reader);
    FakeSocket.last.drop();
    expect(reader.refusal).toEqual(CONNECTION_LOST);
    vi.advanceTimersByTime(60_000);
    FakeSocket.last.accept();
    expect(FakeSocket.last.sent).toEqual([]);
  });

  it("is refused at once without a connection", () => {
    FakeSocket.last.drop();
    streams.create(request, reader);
    expect(reader.refusal).toEqual(CONNECTION_LOST);
  });

  it("ends with its last event, and its lane is used again", () => {
    streams.create(request, reader);
    say("a0", 0, "response.created");
    say("a0", 1, "response.completed");
    say("a0", 2);
    expect(reader.numbers).toEqual([0, 1]);
    reconnect();
    expect(FakeSocket.last.sent).toEqual([]);
    streams.create(request, reader);
    expect(FakeSocket.last.sent[0]).toMatchObject({ stream_id: "a0" });
  });

  it("ends with an error that names its lane", () => {
    streams.create(request, reader);
    FakeSocket.last.say({ type: "error", status: 429, stream_id: "a0", error: { code: "queue_full", message: "Full." } });
    expect(reader.refusal?.code).toBe("queue_full");
  });

  it("starts numbers over with the next response on the same lane", () => {
    streams.create(request, reader);
    say("a0", 0, "response.created");
    say("a0", 945, "response.completed");
    const next = new RecordingReader();
    streams.create(request, next);
    say("a0", 0, "response.created");
    expect(next.numbers).toEqual([0]);
  });
});

describe("cancel", () => {
  const cancels = (): unknown[] => FakeSocket.last.sent.filter(({ type }) => type === "response.cancel");

  it("waits for the id of the response", () => {
    streams.create(request, reader).cancel();
    expect(cancels()).toEqual([]);
    say("a0", 0, "response.created");
    expect(cancels()).toEqual([{ type: "response.cancel", response_id: "resp_a0" }]);
  });

  it("is sent again when the socket was lost", () => {
    const stream = streams.create(request, reader);
    say("a0", 0, "response.created");
    FakeSocket.last.drop();
    stream.cancel();
    vi.advanceTimersByTime(60_000);
    FakeSocket.last.accept();
    expect(cancels()).toHaveLength(1);
  });
});

describe("follow", () => {
  it("asks for all events of a response that is already there", () => {
    streams.follow("resp_9", reader);
    expect(FakeSocket.last.sent).toEqual([{ type: "response.resume", response_id: "resp_9", stream_id: "a0" }]);
  });

  it("waits for the connection", () => {
    FakeSocket.last.drop();
    streams.follow("resp_9", reader);
    vi.advanceTimersByTime(60_000);
    FakeSocket.last.accept();
    expect(FakeSocket.last.sent).toHaveLength(1);
    expect(reader.refusal).toBeNull();
  });

  it("stops telling a reader that left", () => {
    streams.follow("resp_9", reader).leave();
    say("a0", 0, "response.created");
    expect(reader.numbers).toEqual([]);
  });
});

it("refuses more than the server would run", () => {
  for (let count = 0; count < MAX_STREAMS; count += 1) streams.create(request, new RecordingReader());
  streams.create(request, reader);
  expect(reader.refusal?.code).toBe("too_many_running");
});
