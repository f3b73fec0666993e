import { describe, expect, it, vi } from "vitest";
import { StreamingMarkdown, renderBlocks } from "./blocks";
import { parser } from "./parser";

const labels = { copy: "Copy" };

const SAMPLES: Record<string, string> = {
  prose: "One *two* **three** `four`.\n\nA second paragraph\nwith a line break.\n",
  lists: "- a\n- b\n\n  still b\n\n1. x\n2. y\n   - nested\n\nafter\n\n3. third\n",
  fence: "Before\n\n```python\ndef f(x):\n    return x\n\n\nprint(f(1))\n```\n\nAfter `code`.\n",
  "open fence": "Look:\n\n```js\nconst a = 1;\n",
  "tilde fence": "~~~\n```\nnot the end\n```\n~~~\nafter",
  table: "| a | b |\n|:--|--:|\n| 1 | 2 |\n| 3 | 4 |\n\nend\n",
  quote: "> quoted\n> more\nlazy\n\n> > nested\n\nout\n",
  setext: "Title\n=====\n\nSub\n---\ntext\n\n***\n",
  "indented code": "para\n\n    code\n\n    more\n\npara\n",
  "numbers that could be a list": "1. a\n\n2\n\n2. b\n\n-- c\n",
  math: "$$\nx^2\n$$\n\nand $y$\n",
  windows: "one\r\n\r\n- two\r\n- three\r\n\r\nfour\r\n",
  arabic: "مرحبا **بالعالم**\n\n- واحد\n- two\n\n`code` نص\n",
};

/** Cuts a text into pieces of pseudo-random length, the same ones in each run. */
function pieces(text: string, seed: number): string[] {
  const result: string[] = [];
  for (let start = 0, state = seed; start < text.length; ) {
    state = (state * 1103515245 + 12345) % 2147483648;
    const length = 1 + (state % 7);
    result.push(text.slice(start, start + length));
    start += length;
  }
  return result;
}

describe("StreamingMarkdown", () => {
  for (const [name, source] of Object.entries(SAMPLES)) {
    it(`ends as the one-shot rendering: ${name}`, () => {
      for (let seed = 1; seed <= 20; seed += 1) {
        const stream = new StreamingMarkdown(labels);
        let text = "";
        for (const piece of pieces(source, seed)) stream.update((text += piece));
        expect(stream.update(`${source}\n\nlast words`)).toEqual(renderBlocks(`${source}\n\nlast words`, labels));
      }
    });

    it(`never takes back a finished block: ${name}`, () => {
      const whole = renderBlocks(source, labels);
      const stream = new StreamingMarkdown(labels);
      let text = "";
      for (const character of source) {
        const blocks = stream.update((text += character));
        const finished = blocks.slice(0, Math.max(0, blocks.length - 2));
        expect(finished).toEqual(whole.slice(0, finished.length));
      }
    });
  }

  it("renders an open fence as code that ends where the text ends", () => {
    const [block] = new StreamingMarkdown(labels).update("```python\nprint(1)\n``");
    expect(block).toContain("hljs-built_in");
    expect(block).not.toContain("``");
  });

  it("resolves links whose definition came earlier, but not from half a definition", () => {
    const stream = new StreamingMarkdown(labels);
    stream.update("[x]: https://exam");
    const blocks = stream.update("[x]: https://example.org\n\nSee [x].\n");
    expect(blocks.join("")).toContain('href="https://example.org"');
  });

  it("parses finished blocks once", () => {
    const stream = new StreamingMarkdown(labels);
    const text = "A paragraph.\n\n".repeat(100);
    stream.update(text);
    stream.update(`${text}tail\n`);
    const parse = vi.spyOn(parser, "parse");
    stream.update(`${text}tail\nand more`);
    expect(parse.mock.calls.map(([source]) => source)).toEqual(["tail\nand more"]);
  });
});

describe("half-written marks", () => {
  const show = (text: string): string => new StreamingMarkdown(labels).update(text).join("");

  it.each([
    ["a **bol", "<p>a <strong>bol</strong></p>"],
    ["a **", "<p>a</p>"],
    ["a **b** c", "<p>a <strong>b</strong> c</p>"],
    ["a `co", '<p>a <code dir="ltr">co</code></p>'],
    ["see [the docs](https://exa", "<p>see the docs</p>"],
    ["- item **one", "<ul>\n<li>item <strong>one</strong></li>\n</ul>"],
    ["text\n``", "<p>text</p>"],
    ["2 ** 3", "<p>2 ** 3</p>"],
  ])("%j", (source, html) => {
    expect(show(source)).toBe(html);
  });
});
