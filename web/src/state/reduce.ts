/** One event of a running response, applied to the answer it belongs to. */

import { isTerminal, type ErrorBody, type Item, type ResponseEvent, type WireResponse } from "../protocol/types";
import type { Message, MessageStatus, Tree } from "./tree";

/**
 * `key` names the answer in the tree. If it is no longer there, it was deleted while it streamed, and the event is
 * dropped: a late event never brings a message back.
 */
export function applyEvent(tree: Tree, key: string, event: ResponseEvent): void {
  const answer = tree.messages[key];
  if (!answer) return;
  switch (event.type) {
    case "response.created":
      restart(answer, event.response);
      break;
    case "response.in_progress":
      answer.status = "in_progress";
      break;
    case "response.output_item.added":
      learnIds(tree, answer, event.item);
      break;
    case "response.output_text.delta":
      answer.text += event.delta;
      break;
    case "response.output_text.done":
      answer.text = event.text;
      break;
    case "chatsrv.preempted":
    case "chatsrv.resumed":
      answer.isPaused = event.type === "chatsrv.preempted";
      break;
    default:
      if (isTerminal(event) && "response" in event) finish(answer, event.response);
  }
}

/** The request was refused, or the rest of the answer cannot be had. */
export function applyRefusal(tree: Tree, key: string, error: ErrorBody): void {
  const answer = tree.messages[key];
  if (!answer) return;
  answer.status = "failed";
  answer.error = error;
  answer.isPaused = false;
}

/** What the server says of a response that has ended. */
export function finish(answer: Message, response: WireResponse): void {
  answer.status = statusOf(response);
  answer.isPaused = false;
  if (response.usage) answer.usage = response.usage;
  if (response.chatsrv) answer.extras = response.chatsrv;
  if (response.error) answer.error = response.error;
  const reason = response.status === "cancelled" ? "cancelled" : response.incomplete_details?.reason;
  if (reason) answer.reason = reason;
}

/** The first event: a replay begins here as well, so what was there is told again. */
function restart(answer: Message, response: WireResponse): void {
  answer.responseId = response.id;
  answer.status = "queued";
  answer.text = "";
}

/** The server now has the answer, and with it the question. */
function learnIds(tree: Tree, answer: Message, item: Item): void {
  answer.id = item.id;
  const question = tree.messages[answer.parent ?? ""];
  if (question && question.id === null && item.parent_id) question.id = item.parent_id;
}

function statusOf({ status }: WireResponse): MessageStatus {
  return status === "cancelled" ? "incomplete" : status;
}
