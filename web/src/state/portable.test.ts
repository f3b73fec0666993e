import { describe, expect, it } from "vitest";
import { fromJson, toJson, toMarkdown } from "./portable";
import { addMessage, emptyTree, visiblePath } from "./tree";

function path() {
  const tree = emptyTree();
  const question = addMessage(tree, { parent: null, role: "user", text: "Hi", status: "completed" });
  addMessage(tree, { parent: question.key, role: "assistant", text: "Hello!\n", status: "completed" });
  return visiblePath(tree);
}

describe("JSON", () => {
  it("comes back as it went", () => {
    const text = toJson({ title: "A chat", path: path() }, { title: "A chat", settings: "{}" });
    expect(fromJson(text)).toMatchObject({
      title: "A chat",
      metadata: { title: "A chat", settings: "{}" },
      messages: [
        { role: "user", text: "Hi" },
        { role: "assistant", text: "Hello!\n" },
      ],
    });
  });

  it.each(["", "{", "[]", "null", '{"format":"other"}', '{"format":"chatsrv.conversation","title":"x","messages":[1]}'])(
    "refuses %j",
    (text) => expect(fromJson(text)).toBeNull(),
  );
});

it("Markdown is made for reading", () => {
  const names = { user: "You", assistant: "Answer", system: "System" };
  expect(toMarkdown("A chat", path(), names)).toBe("# A chat\n\n## You\n\nHi\n\n## Answer\n\nHello!\n");
});
