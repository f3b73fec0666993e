import { beforeEach, describe, expect, it } from "vitest";
import type { Item } from "../protocol/types";
import { applyEvent } from "./reduce";
import {
  addMessage,
  branchesOf,
  choose,
  emptyTree,
  findById,
  idsOf,
  mergeItems,
  nearestStored,
  removeBranch,
  visiblePath,
  type Tree,
} from "./tree";

let tree: Tree;

beforeEach(() => {
  tree = emptyTree();
});

function item(id: string, parent: string | null, text = id, more: Partial<Item> = {}): Item {
  const role = id.startsWith("u") ? "user" : "assistant";
  const content = [{ type: "text", text }];
  return { id, type: "message", role, status: "completed", content, parent_id: parent, response_id: `resp_${id}`, ...more };
}

const conversation = [item("u1", null), item("a1", "u1"), item("u2", "a1"), item("a2", "u2")];
const shown = (): string[] => visiblePath(tree).map(({ text }) => text);

describe("mergeItems", () => {
  it("shows the newest of each parent's children", () => {
    mergeItems(tree, [...conversation, item("a1b", "u1")]);
    expect(shown()).toEqual(["u1", "a1b"]);
  });

  it("keeps what is shown when more arrives elsewhere", () => {
    mergeItems(tree, conversation);
    choose(tree, findById(tree, "a1")!);
    mergeItems(tree, [...conversation, item("a1b", "u1")]);
    expect(shown()).toEqual(["u1", "a1", "u2", "a2"]);
  });

  it("removes what the server has no longer, and keeps what it does not have yet", () => {
    mergeItems(tree, conversation);
    const parent = findById(tree, "a1")!.key;
    addMessage(tree, { parent, role: "user", text: "mine", status: "completed" });
    mergeItems(tree, conversation.slice(0, 2));
    expect(shown()).toEqual(["u1", "a1", "mine"]);
  });

  it("does not put old text over an answer that streams in", () => {
    mergeItems(tree, [item("u1", null), item("a1", "u1", "", { status: "in_progress" })]);
    applyEvent(tree, "a1", { type: "response.output_text.delta", sequence_number: 5, output_index: 0, delta: "live" });
    mergeItems(tree, [item("u1", null), item("a1", "u1", "", { status: "in_progress" })]);
    expect(shown()).toEqual(["u1", "live"]);
  });

  it("knows what this page has asked for before its events tell the ids", () => {
    const question = addMessage(tree, { parent: null, role: "user", text: "Hi", status: "completed" });
    const answer = addMessage(tree, { parent: question.key, role: "assistant", text: "", status: "queued" });
    answer.responseId = "resp_9";
    const asked = { response_id: "resp_9" };
    mergeItems(tree, [item("u1", null, "Hi", asked), item("a1", "u1", "", { ...asked, status: "in_progress" })]);
    expect(visiblePath(tree).map(({ id }) => id)).toEqual(["u1", "a1"]);
    expect(Object.keys(tree.messages)).toHaveLength(2);
  });

  it("keeps what the server got after it was asked, and what it could not save", () => {
    mergeItems(tree, conversation);
    const before = idsOf(tree);
    mergeItems(tree, [...conversation, item("u3", "a2"), item("a3", "u3")]);
    mergeItems(tree, conversation, before);
    expect(shown().at(-1)).toBe("a3");
    findById(tree, "a3")!.extras = { saved: false };
    mergeItems(tree, conversation);
    expect(shown().at(-1)).toBe("a3");
  });

  it("does not take a failure for a stop", () => {
    mergeItems(tree, conversation);
    findById(tree, "a2")!.status = "failed";
    mergeItems(tree, [...conversation.slice(0, 3), item("a2", "u2", "a2", { status: "incomplete" })]);
    expect(findById(tree, "a2")!.status).toBe("failed");
  });

  it("keeps an answer that streams in before the list has it, with its question", () => {
    mergeItems(tree, conversation.slice(0, 2));
    mergeItems(tree, [...conversation.slice(0, 3), item("a2", "u2", "", { status: "in_progress" })]);
    mergeItems(tree, conversation.slice(0, 2));
    expect(visiblePath(tree).map(({ id }) => id)).toEqual(["u1", "a1", "u2", "a2"]);
  });

  it("follows a child that moved because its parent was deleted", () => {
    mergeItems(tree, conversation);
    mergeItems(tree, [item("u1", null), item("a1", "u1"), item("a2", "a1")]);
    expect(shown()).toEqual(["u1", "a1", "a2"]);
  });
});

describe("branches", () => {
  it("an edited question leaves the old path as it was", () => {
    mergeItems(tree, conversation);
    const edited = addMessage(tree, { parent: null, role: "user", text: "u1 edited", status: "completed" });
    expect(shown()).toEqual(["u1 edited"]);
    choose(tree, findById(tree, "u1")!);
    expect(shown()).toEqual(["u1", "a1", "u2", "a2"]);
    expect(branchesOf(tree).get(null)).toEqual([findById(tree, "u1"), edited]);
  });

  it("removing a message takes what followed it, and nothing else", () => {
    mergeItems(tree, [...conversation, item("a1b", "u1")]);
    const removed = removeBranch(tree, findById(tree, "a1")!);
    expect(removed.map(({ key }) => key)).toEqual(["a2", "u2", "a1"]);
    expect(shown()).toEqual(["u1", "a1b"]);
  });

  it("continues after the nearest message that the server has", () => {
    mergeItems(tree, conversation.slice(0, 2));
    const parent = findById(tree, "a1")!.key;
    const question = addMessage(tree, { parent, role: "user", text: "u2", status: "completed" });
    const answer = addMessage(tree, { parent: question.key, role: "assistant", text: "", status: "failed" });
    expect(nearestStored(tree, answer)?.id).toBe("a1");
    expect(nearestStored(emptyTree(), undefined)).toBeNull();
  });
});
