import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Connection, retryDelay } from "./connection";
import { FakeSocket } from "./fake-socket";

const onStatus = vi.fn();
const onEvent = vi.fn();
let connection: Connection<object>;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
  FakeSocket.opened = [];
  onStatus.mockReset();
  onEvent.mockReset();
  connection = new Connection("ws://here/v1/responses", { onStatus, onEvent });
  connection.connect();
});

afterEach(() => {
  connection.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe("Connection", () => {
  it("hands over events, and ignores frames that are no text", () => {
    FakeSocket.last.accept();
    FakeSocket.last.say({ type: "response.created" });
    FakeSocket.last.onmessage?.({ data: new ArrayBuffer(2) });
    const event = { type: "response.created" };
    expect(onEvent.mock.calls).toEqual([[event, JSON.stringify(event)]]);
  });

  it("comes back after a loss, later each time, and starts over after a success", () => {
    vi.spyOn(Math, "random").mockReturnValue(1);
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const delay = retryDelay(attempt);
      FakeSocket.last.drop();
      vi.advanceTimersByTime(delay - 1);
      expect(FakeSocket.opened).toHaveLength(attempt + 1);
      vi.advanceTimersByTime(1);
      expect(FakeSocket.opened).toHaveLength(attempt + 2);
    }
    FakeSocket.last.accept();
    FakeSocket.last.drop();
    vi.advanceTimersByTime(retryDelay(0));
    expect(FakeSocket.opened).toHaveLength(5);
    const statuses = onStatus.mock.calls.map(([status]) => status);
    expect(statuses.slice(-3)).toEqual(["open", "offline", "connecting"]);
  });

  it("connects at once when asked, with one socket", () => {
    FakeSocket.last.drop();
    connection.connect();
    connection.connect();
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.opened).toHaveLength(2);
  });

  it("sends only through an open socket", () => {
    expect(connection.send({ type: "x" })).toBe(false);
    FakeSocket.last.accept();
    expect(connection.send({ type: "x" })).toBe(true);
    expect(FakeSocket.last.sent).toEqual([{ type: "x" }]);
  });

  it("stays closed after close", () => {
    FakeSocket.last.accept();
    connection.close();
    vi.advanceTimersByTime(60_000);
    expect(FakeSocket.opened).toHaveLength(1);
  });
});

it("the delay grows to a limit and is spread", () => {
  expect(retryDelay(0, () => 0)).toBe(500);
  expect(retryDelay(2, () => 1)).toBe(2500);
  expect(retryDelay(50, () => 1)).toBe(15_500);
});
