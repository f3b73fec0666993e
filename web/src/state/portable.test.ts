import { describe, expect, it } from "vitest";
import { chainsOf, fromJson, toJson, toMarkdown, type PortableMessage } from "./portable";
import { addMessage, choose, emptyTree, visiblePath, type Tree } from "./tree";

function say(tree: Tree, parent: string | null, text: string, role: "user" | "assistant" = "user") {
  return addMessage(tree, { parent, role, text, status: "completed" });
}

/** One question with two answers, of which the first is shown and was followed by another question. */
function branchedTree(): Tree {
  const tree = emptyTree();
  const question = say(tree, null, "Hi");
  const first = say(tree, question.key, "Hello!\n", "assistant");
  say(tree, question.key, "Good day.", "assistant");
  say(tree, first.key, "And now?");
  choose(tree, first);
  return tree;
}

const METADATA = { title: "A chat", settings: "{}" };

describe("JSON", () => {
  it("holds the whole tree, and which branch is shown", () => {
    const tree = branchedTree();
    const text = toJson({ title: "A chat", tree, path: visiblePath(tree) }, METADATA);
    expect(fromJson(text)).toEqual({
      format: "chatsrv.conversation",
      version: 2,
      title: "A chat",
      metadata: METADATA,
      messages: [
        { parent: null, role: "user", text: "Hi", shown: true },
        { parent: 0, role: "assistant", text: "Hello!\n", shown: true },
        { parent: 1, role: "user", text: "And now?", shown: true },
        { parent: 0, role: "assistant", text: "Good day." },
      ],
    });
  });

  it("holds conversations that are deeper than the stack", () => {
    const tree = emptyTree();
    let parent: string | null = null;
    for (let number = 0; number < 20_000; number += 1) parent = say(tree, parent, "x").key;
    expect(fromJson(toJson({ title: "", tree, path: [] }, {}))?.messages).toHaveLength(20_000);
  });

  const file = { format: "chatsrv.conversation", version: 2, title: "x", metadata: {}, messages: [] };

  it.each([
    "",
    "{",
    "[]",
    "null",
    '{"format":"other"}',
    JSON.stringify({ ...file, version: 3 }),
    JSON.stringify({ ...file, metadata: { a: 1 } }),
    JSON.stringify({ ...file, messages: [1] }),
    JSON.stringify({ ...file, messages: [{ parent: null, role: "robot", text: "x" }] }),
    JSON.stringify({ ...file, messages: [{ parent: 0, role: "user", text: "its own parent" }] }),
    JSON.stringify({ ...file, messages: [{ parent: -1, role: "user", text: "x" }] }),
  ])("refuses %j", (text) => expect(fromJson(text)).toBeNull());
});

describe("chains", () => {
  const message = (parent: number | null): PortableMessage => ({ parent, role: "user", text: "" });

  it("carry what follows the message before it, and begin anew at a branch", () => {
    expect(chainsOf([null, 0, 1, 0, 3, null].map(message), 20)).toEqual([
      { parent: null, places: [0, 1, 2] },
      { parent: 0, places: [3, 4] },
      { parent: null, places: [5] },
    ]);
  });

  it("are no longer than one request may be", () => {
    expect(chainsOf([null, 0, 1, 2, 3].map(message), 2)).toEqual([
      { parent: null, places: [0, 1] },
      { parent: 1, places: [2, 3] },
      { parent: 3, places: [4] },
    ]);
  });
});

it("Markdown is made for reading: it holds what is shown", () => {
  const names = { user: "You", assistant: "Answer", system: "System" };
  expect(toMarkdown("A chat", visiblePath(branchedTree()), names)).toBe(
    "# A chat\n\n## You\n\nHi\n\n## Answer\n\nHello!\n\n## You\n\nAnd now?\n",
  );
});
