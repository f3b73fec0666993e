import { beforeEach, describe, expect, it } from "vitest";
import type { ResponseEvent, WireResponse } from "../protocol/types";
import { applyEvent, applyRefusal } from "./reduce";
import { addMessage, emptyTree, removeBranch, type Message, type Tree } from "./tree";

let tree: Tree;
let question: Message;
let answer: Message;

beforeEach(() => {
  tree = emptyTree();
  question = addMessage(tree, { parent: null, role: "user", text: "Hello", status: "completed" });
  answer = addMessage(tree, { parent: question.key, role: "assistant", text: "", status: "queued" });
});

const usage = { input_tokens: 8, output_tokens: 2, total_tokens: 10, input_tokens_details: { cached_tokens: 4 } };

function response(more: Partial<WireResponse>): WireResponse {
  return { id: "resp_1", status: "in_progress", ...more };
}

type Unnumbered = ResponseEvent extends infer E ? (E extends unknown ? Omit<E, "sequence_number"> : never) : never;

function apply(...events: Unnumbered[]): void {
  events.forEach((event, index) => applyEvent(tree, answer.key, { ...event, sequence_number: index } as ResponseEvent));
}

function delta(text: string): Unnumbered {
  return { type: "response.output_text.delta", output_index: 0, delta: text };
}

const begun: Unnumbered[] = [
  { type: "response.created", response: response({ status: "queued" }) },
  { type: "response.in_progress", response: response({}) },
  {
    type: "response.output_item.added",
    output_index: 0,
    item: { id: "msg_a", type: "message", role: "assistant", status: "in_progress", content: [], parent_id: "msg_u" },
  },
];

describe("applyEvent", () => {
  it("builds the answer and learns the ids of both messages", () => {
    apply(...begun, delta("Hi"), delta(" there"));
    expect(answer).toMatchObject({ id: "msg_a", responseId: "resp_1", text: "Hi there", status: "in_progress" });
    expect(question.id).toBe("msg_u");
  });

  it.each([
    ["response.completed", response({ status: "completed", usage }), { status: "completed", usage }],
    [
      "response.incomplete",
      response({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } }),
      { status: "incomplete", reason: "max_output_tokens" },
    ],
    ["response.cancelled", response({ status: "cancelled" }), { status: "incomplete", reason: "cancelled", text: "Hi" }],
    [
      "response.failed",
      response({ status: "failed", error: { code: "server_error", message: "broke" } }),
      { status: "failed", error: { code: "server_error", message: "broke" } },
    ],
  ] as const)("ends by %s", (type, wire, expected) => {
    apply(...begun, delta("Hi"), { type, response: wire });
    expect(answer).toMatchObject(expected);
  });

  it("tells a replay from the beginning, without doubling what was there", () => {
    apply(...begun, delta("Hi"));
    apply(...begun, delta("Hi"), delta("!"));
    expect(answer.text).toBe("Hi!");
  });

  it("shows a preemption until it is over", () => {
    apply(...begun, { type: "chatsrv.preempted", response_id: "resp_1" });
    expect(answer.isPaused).toBe(true);
    apply({ type: "chatsrv.resumed", response_id: "resp_1" });
    expect(answer.isPaused).toBe(false);
  });

  it("does not bring back a message that was deleted while it streamed", () => {
    apply(...begun, delta("Hi"));
    removeBranch(tree, question);
    apply(delta(" there"), { type: "response.completed", response: response({ status: "completed" }) });
    expect(tree.messages).toEqual({});
  });

  it("ignores kinds of events that it does not know", () => {
    apply(...begun, { type: "response.something.new" } as never);
    expect(answer.status).toBe("in_progress");
  });
});

it("a refused request leaves an answer that says why", () => {
  applyRefusal(tree, answer.key, { code: "queue_full", message: "Too many wait." });
  expect(answer).toMatchObject({ status: "failed", error: { code: "queue_full" } });
});
