/** What the server says when something went wrong, in the reader's language where the page has words for it. */

import type { ErrorBody } from "../protocol/types";
import { LANGUAGES, t, type MessageKey } from "./messages.svelte";

/** Null for codes that are rare. */
export function explain(error: Pick<ErrorBody, "code">): string | null {
  const key = `problem.${error.code}`;
  return isKey(key) ? t(key) : null;
}

/** For a line that has no markup: the server's own words find their own direction between the reader's. */
export function explainInLine(error: ErrorBody): string {
  return explain(error) ?? `\u2068${error.message}\u2069`;
}

function isKey(key: string): key is MessageKey {
  return Object.hasOwn(LANGUAGES.en.messages, key);
}
