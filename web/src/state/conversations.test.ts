import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Conversation } from "../protocol/types";
import { ConversationList } from "./conversations.svelte";

const PAGE = 50;

/** The server's conversations, last used first. */
let stored: string[];
let list: ConversationList;

beforeEach(() => {
  stored = Array.from({ length: 120 }, (_, number) => `conv_${number}`);
  list = new ConversationList();
  vi.stubGlobal("fetch", async (path: string) => answer(new URL(path, "http://here").searchParams));
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function answer(parameters: URLSearchParams): Response {
  const after = parameters.get("after");
  const start = after === null ? 0 : stored.indexOf(after) + 1;
  if (after !== null && start === 0) {
    const error = { code: "conversation_not_found", param: "after", message: "no such conversation" };
    return new Response(JSON.stringify({ error }), { status: 404 });
  }
  const found = stored.slice(start).filter((id) => id.includes(parameters.get("query") ?? ""));
  const data = found.slice(0, PAGE).map((id): Conversation => ({ id, created_at: 0, last_used_at: 0, metadata: {} }));
  return Response.json({ data, last_id: data.at(-1)?.id ?? null, has_more: found.length > PAGE });
}

function use(id: string): void {
  stored = [id, ...stored.filter((other) => other !== id)];
}

const listed = (): string[] => list.entries.map(({ id }) => id);

/** No conversation twice: the page could not be drawn. */
function expectEachOnce(): void {
  expect(listed()).toHaveLength(new Set(listed()).size);
}

it("a search finds what matches, whatever is used meanwhile", async () => {
  vi.useFakeTimers();
  list.search("conv_7");
  await vi.advanceTimersByTimeAsync(1000);
  list.touch({ id: "conv_1", title: "Other" });
  list.touch({ id: "conv_72", title: "Found" });
  expect(listed()).toEqual(["conv_72", "conv_7", ...stored.slice(70, 72), ...stored.slice(73, 80)]);
});

it("a search without a connection is made up for", async () => {
  vi.useFakeTimers();
  const { fetch } = globalThis;
  vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("no network")));
  list.search("conv_7");
  await vi.advanceTimersByTimeAsync(1000);
  vi.stubGlobal("fetch", fetch);
  await list.refresh();
  expect(listed()).toEqual(["conv_7", ...stored.slice(70, 80)]);
});

describe("earlier conversations", () => {
  it("are read once, however often they are asked for", async () => {
    await list.refresh();
    await Promise.all([list.readMore(), list.readMore()]);
    expect(listed()).toEqual(stored.slice(0, 100));
    await list.readMore();
    expect(listed()).toEqual(stored);
    expect(list).toMatchObject({ hasMore: false, isReading: false });
  });

  it("are found where the last one that is listed was used elsewhere", async () => {
    await list.refresh();
    await list.readMore();
    use("conv_99");
    await list.readMore();
    expectEachOnce();
    expect(listed()).toContain("conv_100");
    await list.readMore();
    expect(new Set(listed())).toEqual(new Set(stored));
  });

  it("are found where the last one that is listed was deleted", async () => {
    await list.refresh();
    stored = stored.filter((id) => id !== "conv_49");
    await list.readMore();
    expect(listed()).toEqual(stored.slice(0, 50));
    await list.readMore();
    expect(listed()).toEqual(stored.slice(0, 100));
  });

  it("that are overtaken by a search are left out", async () => {
    vi.useFakeTimers();
    await list.refresh();
    let arrive = (): void => {};
    const late = new Promise<void>((resolve) => (arrive = resolve));
    vi.stubGlobal("fetch", async (path: string) => {
      const { searchParams } = new URL(path, "http://here");
      if (searchParams.has("after")) await late;
      return answer(searchParams);
    });
    const reading = list.readMore();
    list.search("conv_7");
    await vi.advanceTimersByTimeAsync(1000);
    arrive();
    await reading;
    expect(listed()).toEqual(stored.filter((id) => id.includes("conv_7")));
  });

  it("stay listed when the list is read again", async () => {
    await list.refresh();
    await list.readMore();
    use("conv_110");
    await list.refresh();
    expect(listed()).toEqual(stored.slice(0, 100));
  });
});
