/** Half-written Markdown at the end of a growing text, shown as what it is about to become. */

import { scanner } from "./parser";

const PARTIAL_FENCE = /(^|\n) {0,3}(`{1,2}|~{1,2})$/;
const PARTIAL_LINK = /!?\[([^\]\n]*)\]\([^)\n]*$/;
const DANGLING_MARK = /(\*{1,2}|`+)$/;

/** The text with marks added or held back so that nothing flickers. */
export function closeOpenEnds(source: string): string {
  const text = source.replace(PARTIAL_FENCE, "$1");
  const last = scanner.parse(text, {}).findLast((token) => token.nesting >= 0);
  return last?.type === "inline" ? closeInline(text.trimEnd(), last.content) : text;
}

function closeInline(text: string, paragraph: string): string {
  const run = openCodeSpan(paragraph);
  if (run !== null) return text.endsWith(run) ? text.replace(DANGLING_MARK, "") : text + run;
  const whole = text.replace(PARTIAL_LINK, "$1");
  if (!hasOpenStrong(paragraph)) return whole;
  return DANGLING_MARK.test(whole) ? whole.replace(DANGLING_MARK, "") : `${whole}**`;
}

/** The run of backticks that opens an unclosed code span, if there is one. */
function openCodeSpan(paragraph: string): string | null {
  let open: string | null = null;
  for (const [run] of paragraph.matchAll(/\\`|`+/g)) {
    if (run === open) open = null;
    else if (open === null && run !== "\\`") open = run;
  }
  return open;
}

function hasOpenStrong(paragraph: string): boolean {
  const prose = paragraph.replace(/(`+)[^`][\s\S]*?\1/g, "");
  const marks = [...prose.matchAll(/(?<!\\)\*\*/g)];
  return marks.length % 2 === 1 && !/^\s+\S/.test(prose.slice(marks.at(-1)!.index + 2));
}
