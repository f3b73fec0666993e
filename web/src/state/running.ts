/**
 * Responses that this browser asked for and has not seen the end of, so that a reload finds them again.
 *
 * The server lists an answer's items only once its generation has begun; until then this is the only trace of it.
 */

import { readStored, writeStored } from "./stored";

export interface RunningResponse {
  responseId: string;
  conversationId: string;
  /** Item that it continues after, or "root"; without `input`, the question that it answers. */
  parentId: string;
  input?: string;
}

export function runningResponses(): RunningResponse[] {
  try {
    const value: unknown = JSON.parse(readStored("running") ?? "[]");
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}

export function rememberRunning(response: RunningResponse): void {
  write([...runningResponses().filter(({ responseId }) => responseId !== response.responseId), response]);
}

export function forgetRunning(responseId: string): void {
  write(runningResponses().filter((response) => response.responseId !== responseId));
}

function write(responses: RunningResponse[]): void {
  writeStored("running", responses.length ? JSON.stringify(responses) : null);
}
