/**
 * An answer as a list of blocks, each the safe HTML of one top-level Markdown block.
 *
 * While an answer streams in, text is only ever appended, and appended text can change the last block alone: as soon
 * as a later block has begun on a complete line, the earlier ones are finished and are not looked at again.
 *
 *     | finished: rendered once          | tail: rendered on each update |
 *     0                                  #start                          source.length
 */

import type { Token } from "markdown-it";
import { closeOpenEnds } from "./open-ends";
import { parser, scanner, type Environment, type Labels } from "./parser";
import { sanitise } from "./sanitise";

/** The whole text at once. What a streamed answer looks like when it has ended. */
export function renderBlocks(source: string, labels: Labels): string[] {
  return render(source, { labels });
}

/** Renders a growing text again and again, at the cost of its last block. */
export class StreamingMarkdown {
  #finished: string[] = [];
  #start = 0;
  #environment: Environment;

  constructor(labels: Labels) {
    this.#environment = { labels };
  }

  /** Blocks of the text so far; `source` must begin with the text given before. */
  update(source: string): string[] {
    let tail = source.slice(this.#start);
    const length = lengthOfFinished(tail);
    if (length > 0) {
      this.#finished.push(...render(tail.slice(0, length), this.#environment));
      this.#start += length;
      tail = tail.slice(length);
    }
    // A copy: a link definition that is still being written must not be remembered.
    const environment = { ...this.#environment, references: { ...this.#environment.references } };
    return [...this.#finished, ...render(closeOpenEnds(tail), environment)];
  }
}

function render(source: string, environment: Environment): string[] {
  const tokens = parser.parse(source, environment);
  return topLevelBlocks(tokens).map((block) =>
    sanitise(parser.renderer.render(block, parser.options, environment)).trimEnd(),
  );
}

function topLevelBlocks(tokens: Token[]): Token[][] {
  const blocks: Token[][] = [];
  let depth = 0;
  for (const token of tokens) {
    if (depth === 0) blocks.push([]);
    blocks.at(-1)!.push(token);
    depth += token.nesting;
  }
  return blocks;
}

/** Number of characters before the last block, or 0 while its first line could still turn out to be something else. */
function lengthOfFinished(source: string): number {
  const last = topLevelBlocks(scanner.parse(source, {})).at(-1)?.[0];
  const firstLine = last?.map?.[0] ?? 0;
  if (firstLine === 0 || startOfLine(source, firstLine + 1) === null) return 0;
  return startOfLine(source, firstLine) ?? 0;
}

function startOfLine(source: string, line: number): number | null {
  const breaks = /\r\n?|\n/g;
  for (let count = 0; count < line; count += 1) {
    if (!breaks.exec(source)) return null;
  }
  return breaks.lastIndex;
}
