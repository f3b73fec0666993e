/** Markdown to HTML: CommonMark with tables and strikethrough, no raw HTML, code highlighted. */

import MarkdownIt, { type Env, type RendererRule, type Token } from "markdown-it";
import { highlight } from "./languages";

/** Words of the interface that appear inside rendered answers. */
export interface Labels {
  copy: string;
}

/** Goes with a text through parsing and rendering, and collects its link reference definitions. */
export interface Environment extends Env {
  labels: Labels;
}

export const parser = new MarkdownIt({ html: false, linkify: true, breaks: true, typographer: false });

parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

/** Finds where blocks begin and end, without looking inside them. */
export const scanner = new MarkdownIt({ html: false });

scanner.core.ruler.enableOnly(["normalize", "block"]);

const escape = parser.utils.escapeHtml;

function renderCode(code: string, language: string, environment: Env | undefined): string {
  const { labels } = environment as Environment;
  const body = highlight(code, language) ?? escape(code);
  return (
    `<div class="code"><div class="code-head"><span class="code-language" dir="ltr">${escape(language)}</span>` +
    `<button type="button" data-copy="">${escape(labels.copy)}</button></div>` +
    `<pre dir="ltr"><code class="hljs">${body}</code></pre></div>\n`
  );
}

function languageOf(fence: Token): string {
  return parser.utils.unescapeAll(fence.info).trim().split(/\s+/)[0]?.toLowerCase() ?? "";
}

const { rules } = parser.renderer;

rules.fence = (tokens, index, _options, environment) =>
  renderCode(tokens[index]!.content, languageOf(tokens[index]!), environment);

rules.code_block = (tokens, index, _options, environment) => renderCode(tokens[index]!.content, "", environment);

rules.code_inline = (tokens, index) => `<code dir="ltr">${escape(tokens[index]!.content)}</code>`;

// A picture becomes a link to it: nothing is fetched until the reader asks for it.
rules.image = (tokens, index) => {
  const image = tokens[index]!;
  const address = escape(String(image.attrGet("src")));
  const text = escape(image.content) || address;
  return `<a href="${address}" target="_blank" rel="noopener noreferrer nofollow">${text}</a>`;
};

rules.link_open = (tokens, index, options, _environment, renderer) => {
  tokens[index]!.attrSet("target", "_blank");
  tokens[index]!.attrSet("rel", "noopener noreferrer nofollow");
  return renderer.renderToken(tokens, index, options);
};

// Column alignment comes as a style attribute, which the content security policy forbids.
const renderCell: RendererRule = (tokens, index, options, _environment, renderer) => {
  const cell = tokens[index]!;
  const style = cell.attrGet("style");
  cell.attrs = style === null ? null : [["data-align", String(style).replace("text-align:", "")]];
  return renderer.renderToken(tokens, index, options);
};
rules.th_open = renderCell;
rules.td_open = renderCell;

// A wide table scrolls inside its own box instead of widening the page.
rules.table_open = () => '<div class="table"><table>\n';
rules.table_close = () => "</table></div>\n";
