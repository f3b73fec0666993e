import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FakeSocket } from "../protocol/fake-socket";
import { ResponseStreams } from "../protocol/streams";
import type { Item } from "../protocol/types";
import { Chat } from "./chat.svelte";
import { rememberRunning, runningResponses } from "./running";
import type { Message } from "./tree";

/** Answers of the HTTP side: `METHOD path` to body; an absent one is a 404. */
let answers: Record<string, unknown>;
let asked: string[];
/** What was sent last. */
let sent: unknown;
let streams: ResponseStreams;
let chat: Chat;

const listener = { onChanged: vi.fn(), onAnswered: vi.fn(), onGone: vi.fn(), onHomeless: vi.fn() };

beforeEach(() => {
  localStorage.clear();
  answers = { "POST /v1/conversations": { id: "conv_1", metadata: {} } };
  asked = [];
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.stubGlobal("fetch", async (path: string, { method, body: text }: RequestInit) => {
    const [name] = path.split("?");
    asked.push(`${method} ${name}`);
    if (typeof text === "string") sent = JSON.parse(text);
    const body = answers[`${method} ${name}`];
    const status = body === undefined ? 404 : 200;
    return new Response(JSON.stringify(body ?? { error: { code: "not_found", message: "Not there." } }), { status });
  });
  FakeSocket.opened = [];
  streams = new ResponseStreams("ws://here", () => {});
  streams.connect();
  FakeSocket.last.accept();
  chat = new Chat(streams, listener, () => ({}));
});

afterEach(() => {
  streams.close();
  vi.unstubAllGlobals();
});

function creates(): Record<string, unknown>[] {
  return FakeSocket.last.sent.filter(({ type }) => type === "response.create");
}

function say(lane: string, number: number, type: string, more: object = {}): void {
  FakeSocket.last.say({ type, stream_id: lane, sequence_number: number, ...more });
}

/** The server takes the request on a lane: the answer's item follows its question's. */
function begin(lane: string, answer: string, question: string): void {
  say(lane, 0, "response.created", { response: { id: `resp_${answer}`, status: "queued" } });
  const item = { id: answer, type: "message", role: "assistant", status: "in_progress", content: [], parent_id: question };
  say(lane, 1, "response.output_item.added", { output_index: 0, item });
}

function finish(lane: string, answer: string, text: string): void {
  say(lane, 2, "response.output_text.delta", { delta: text });
  say(lane, 3, "response.completed", { response: { id: `resp_${answer}`, status: "completed" } });
}

function item(id: string, parent: string | null, more: Partial<Item> = {}): Item {
  const role = id.startsWith("u") ? "user" : "assistant";
  const content = [{ type: "text", text: id }];
  return { id, type: "message", role, status: "completed", content, parent_id: parent, response_id: `resp_${id}`, ...more };
}

async function load(...items: Item[]): Promise<void> {
  answers["GET /v1/conversations/conv_1"] ??= { id: "conv_1", metadata: { title: "A chat" } };
  answers["GET /v1/conversations/conv_1/items"] = { data: items, has_more: false, last_id: null };
  await chat.load("conv_1");
}

const shown = (): string[] => chat.path.map(({ text }) => text);
const last = (): Message => chat.path.at(-1)!;

describe("asking", () => {
  it("creates the conversation with the first question, and names it after that", async () => {
    await chat.send("What is paging?\nIn detail.");
    expect(chat).toMatchObject({ id: "conv_1", title: "What is paging?" });
    expect(creates()).toMatchObject([{ conversation: "conv_1", parent_id: "root", input: "What is paging?\nIn detail." }]);
    begin("a0", "m2", "m1");
    finish("a0", "m2", "Blocks.");
    expect(shown()).toEqual(["What is paging?\nIn detail.", "Blocks."]);
    expect(listener.onAnswered).toHaveBeenCalledWith(expect.objectContaining({ id: "m2", status: "completed" }));
  });

  it("continues after the last answer of the visible path", async () => {
    await load(item("u1", null), item("a1", "u1"), item("a1b", "u1"));
    chat.choose(chat.branches.get("u1")![0]!);
    await chat.send("More");
    expect(creates()).toMatchObject([{ parent_id: "a1", input: "More" }]);
  });

  it("an edit asks in place of the question and keeps what followed it", async () => {
    await load(item("u1", null), item("a1", "u1"), item("u2", "a1"), item("a2", "u2"));
    chat.edit(chat.path[2]!, "u2 edited");
    expect(creates()).toMatchObject([{ parent_id: "a1", input: "u2 edited" }]);
    begin("a0", "a3", "u3");
    finish("a0", "a3", "new");
    expect(shown()).toEqual(["u1", "a1", "u2 edited", "new"]);
    chat.choose(chat.branches.get("a1")![0]!);
    expect(shown()).toEqual(["u1", "a1", "u2", "a2"]);
  });

  it("regenerating twice at once gives two more answers to the same question", async () => {
    await load(item("u1", null), item("a1", "u1"));
    const first = last();
    chat.regenerate(first);
    chat.regenerate(first);
    expect(creates()).toMatchObject([{ parent_id: "u1" }, { parent_id: "u1" }]);
    expect(creates().some((create) => "input" in create)).toBe(false);
    begin("a1", "a3", "u1");
    begin("a0", "a2", "u1");
    finish("a0", "a2", "second");
    finish("a1", "a3", "third");
    expect(chat.branches.get("u1")!.map(({ text }) => text)).toEqual(["a1", "second", "third"]);
  });

  it("several answers wait for the question, whose blocks they share", async () => {
    chat.settings.numAnswers = 3;
    await chat.send("Hi");
    expect(creates()).toHaveLength(1);
    begin("a0", "m2", "m1");
    expect(creates()).toMatchObject([{ input: "Hi" }, { parent_id: "m1" }, { parent_id: "m1" }]);
  });

  it("a question that did not reach the server is asked again as it was", async () => {
    await chat.send("Hi");
    FakeSocket.last.drop();
    expect(last()).toMatchObject({ status: "failed", error: { code: "connection_lost" } });
    streams.connect();
    FakeSocket.last.accept();
    chat.regenerate(last());
    expect(creates()).toMatchObject([{ parent_id: "root", input: "Hi" }]);
    expect(chat.path).toHaveLength(2);
  });
});

describe("while an answer streams", () => {
  it("deleting it stops it, and late events do not bring it back", async () => {
    answers["DELETE /v1/conversations/conv_1/items/m2"] = {};
    await chat.send("Hi");
    begin("a0", "m2", "m1");
    await chat.remove(last());
    expect(FakeSocket.last.sent.at(-1)).toEqual({ type: "response.cancel", response_id: "resp_m2" });
    finish("a0", "m2", "late");
    expect(shown()).toEqual(["Hi"]);
    expect(asked).toContain("DELETE /v1/conversations/conv_1/items/m2");
  });

  it("stopping and asking at once continues after what was delivered", async () => {
    await chat.send("Hi");
    begin("a0", "m2", "m1");
    say("a0", 2, "response.output_text.delta", { delta: "Hel" });
    expect(chat.isAnswering).toBe(true);
    chat.stop();
    expect(chat.isAnswering).toBe(false);
    await chat.send("What did you say?");
    expect(creates().at(-1)).toMatchObject({ parent_id: "m2", input: "What did you say?" });
  });

  it("what is stopped before the server has it leaves its place to the next question", async () => {
    await load(item("u1", null), item("a1", "u1"));
    await chat.send("Oh");
    chat.stop();
    expect(chat).toMatchObject({ isAnswering: false, mustWait: true });
    say("a0", 0, "response.created", { response: { id: "resp_2", status: "queued" } });
    say("a0", 1, "response.cancelled", { response: { id: "resp_2", status: "cancelled" } });
    expect(chat.mustWait).toBe(true);
    await vi.waitFor(() => expect(chat.mustWait).toBe(false));
    expect(shown()).toEqual(["u1", "a1", "Oh", ""]);
    await chat.send("Next");
    expect(creates().at(-1)).toMatchObject({ parent_id: "a1", input: "Next" });
    expect(chat.branches.get("a1")!.map(({ text }) => text)).toEqual(["Next"]);
  });

  it("what is stopped before its first word is followed by the next question, if the server has it", async () => {
    await load(item("u1", null), item("a1", "u1"));
    await chat.send("u2");
    chat.stop();
    const stored = [item("u2", "a1", { response_id: "resp_2" }), item("a2", "u2", { response_id: "resp_2", content: [] })];
    answers["GET /v1/conversations/conv_1/items"] = { data: [item("u1", null), item("a1", "u1"), ...stored], has_more: false };
    say("a0", 0, "response.created", { response: { id: "resp_2", status: "queued" } });
    say("a0", 1, "response.cancelled", { response: { id: "resp_2", status: "cancelled" } });
    await vi.waitFor(() => expect(chat.mustWait).toBe(false));
    await chat.send("Next");
    expect(creates().at(-1)).toMatchObject({ parent_id: "a2", input: "Next" });
    expect(shown()).toEqual(["u1", "a1", "u2", "", "Next", ""]);
  });

  it("what is stopped as soon as the server has it is followed by the next question", async () => {
    await chat.send("Oh");
    chat.stop();
    begin("a0", "m2", "m1");
    expect(chat.mustWait).toBe(false);
    await chat.send("Next");
    expect(creates().at(-1)).toMatchObject({ parent_id: "m2", input: "Next" });
  });

  it("a new conversation is created once, however fast one asks", async () => {
    const sending = chat.send("One");
    expect(chat.mustWait).toBe(true);
    await sending;
    expect(asked).toEqual(["POST /v1/conversations"]);
  });

  it("a reload finds it again by its item", async () => {
    await load(item("u1", null), item("a1", "u1", { status: "in_progress" }));
    expect(FakeSocket.last.sent).toEqual([{ type: "response.resume", response_id: "resp_a1", stream_id: "a0" }]);
    begin("a0", "a1", "u1");
    finish("a0", "a1", "from the beginning");
    expect(shown()).toEqual(["u1", "from the beginning"]);
  });

  it("a reload finds it again before it has an item", async () => {
    rememberRunning({ responseId: "resp_9", conversationId: "conv_1", parentId: "a1", input: "Waiting" });
    rememberRunning({ responseId: "resp_8", conversationId: "conv_other", parentId: "root", input: "Elsewhere" });
    await load(item("u1", null), item("a1", "u1"));
    expect(shown()).toEqual(["u1", "a1", "Waiting", ""]);
    begin("a0", "9", "u2");
    finish("a0", "9", "Here I am.");
    expect(shown()).toEqual(["u1", "a1", "Waiting", "Here I am."]);
    expect(runningResponses().map(({ responseId }) => responseId)).toEqual(["resp_8"]);
  });

  it("an answer whose events are gone when the page wakes up is read as a whole", async () => {
    await chat.send("Hi");
    begin("a0", "m2", "m1");
    answers["GET /v1/responses/resp_m2"] = { id: "resp_m2", status: "completed", output: [item("m2", "m1")] };
    FakeSocket.last.say({ type: "error", status: 400, stream_id: "a0", error: { code: "not_resumable", message: "Gone." } });
    await vi.waitFor(() => expect(last()).toMatchObject({ status: "completed", text: "m2" }));
  });

  it("an answer whose events are gone is read as a whole", async () => {
    await load(item("u1", null), item("a1", "u1", { status: "in_progress" }));
    const output = [item("a1", "u1", { content: [{ type: "output_text", text: "All of it." }] })];
    answers["GET /v1/responses/resp_a1"] = { id: "resp_a1", status: "completed", output };
    FakeSocket.last.say({ type: "error", status: 400, stream_id: "a0", error: { code: "not_resumable", message: "Gone." } });
    await vi.waitFor(() => expect(last()).toMatchObject({ status: "completed", text: "All of it." }));
  });
});

describe("a conversation that another page deleted", () => {
  const gone = { code: "conversation_not_found", message: "no such conversation" };

  it("asks elsewhere what it was asked", async () => {
    await load(item("u1", null), item("a1", "u1"));
    chat.settings.instructions = "Be brief.";
    await chat.send("More");
    FakeSocket.last.say({ type: "error", status: 404, stream_id: "a0", error: gone });
    expect(chat.isGone).toBe(true);
    expect(listener.onGone).toHaveBeenCalledWith(chat);
    expect(last()).toMatchObject({ status: "failed", error: gone });
    chat.regenerate(last());
    expect(listener.onHomeless).toHaveBeenCalledWith("More", expect.objectContaining({ instructions: "Be brief." }));
    expect(creates()).toHaveLength(1);
  });

  it("stays in view when it is read again", async () => {
    await load(item("u1", null), item("a1", "u1"));
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify({ error: gone }), { status: 404 }));
    await chat.refresh();
    expect(chat.isGone).toBe(true);
    expect(shown()).toEqual(["u1", "a1"]);
  });
});

it("settings are kept with the conversation", async () => {
  answers["POST /v1/conversations/conv_1"] = {};
  await load(item("u1", null), item("a1", "u1"));
  chat.settings.instructions = "Be brief.";
  await chat.rename("Other title");
  expect(asked.at(-1)).toBe("POST /v1/conversations/conv_1");
  chat.regenerate(last());
  expect(creates()).toMatchObject([{ instructions: "Be brief." }]);
});

describe("a conversation of another client", () => {
  it("is called after its first question, and keeps what else is known of it", async () => {
    answers["GET /v1/conversations/conv_1"] = { id: "conv_1", metadata: { project: "x" } };
    await load(item("u1", null), item("a1", "u1"));
    expect(chat.title).toBe("u1");
    expect(asked).toContain("POST /v1/conversations/conv_1");
    expect(sent).toEqual({ metadata: { project: "x", title: "u1" } });
  });

  it("has no name while nothing was asked", async () => {
    answers["GET /v1/conversations/conv_1"] = { id: "conv_1", metadata: {} };
    await load();
    expect(chat.title).toBe("");
    expect(asked).not.toContain("POST /v1/conversations/conv_1");
  });
});
