import { beforeEach, describe, expect, it } from "vitest";
import { patchHtml } from "./patch";

let element: HTMLElement;

beforeEach(() => {
  element = document.createElement("div");
});

describe("patchHtml", () => {
  it.each([
    ["", "<p>a</p>"],
    ["<p>a</p>", "<p>ab</p>"],
    ["<p>a</p>", '<p class="x">a</p>'],
    ["<ul><li>a</li></ul>", "<ul><li>a</li><li>b</li></ul>"],
    ["<p>a</p><p>b</p>", "<h1>a</h1>"],
    ["<p>a <b>c</b> d</p>", "<p>a d</p>"],
    ["text", "<p>text</p>"],
  ])("turns %j into %j", (before, after) => {
    patchHtml(element, before);
    patchHtml(element, after);
    expect(element.innerHTML).toBe(after);
  });

  it("keeps the nodes that stay, and text nodes that grow", () => {
    patchHtml(element, "<ul><li>one</li><li>tw</li></ul>");
    const [first, second] = element.querySelectorAll("li");
    const text = second!.firstChild;
    patchHtml(element, "<ul><li>one</li><li>two</li><li>three</li></ul>");
    expect(element.querySelectorAll("li")[0]).toBe(first);
    expect(element.querySelectorAll("li")[1]!.firstChild).toBe(text);
  });
});
