/**
 * A conversation as a tree of messages.
 *
 * Every message knows its parent; the children of one parent, in order of creation, are alternatives: edits of a
 * question or regenerations of an answer. What is shown is the path that follows one chosen child at each step.
 * Nothing that happens on one path can touch a message on another.
 */

import { textOf, type ErrorBody, type Extras, type Item, type Usage } from "../protocol/types";

export type MessageStatus = "queued" | "in_progress" | "completed" | "incomplete" | "failed";

export interface Message {
  /** Names the message on this page, for as long as the page lives. */
  key: string;
  /** Names it on the server; null until the server has it. */
  id: string | null;
  parent: string | null;
  role: "user" | "assistant" | "system";
  text: string;
  status: MessageStatus;
  responseId: string | null;
  createdAt: number;
  /** Why an answer is incomplete, as the server says. */
  reason?: string;
  error?: ErrorBody;
  usage?: Usage;
  extras?: Extras;
  /** Preempted: waits for blocks and goes on by itself. */
  isPaused?: boolean;
  /** The reader has stopped it; its last event is on the way. */
  isStopping?: boolean;
}

export interface Tree {
  messages: Record<string, Message>;
  /** Child shown after each parent; the key of the root is "". */
  chosen: Record<string, string>;
}

export function emptyTree(): Tree {
  return { messages: {}, chosen: {} };
}

let numKeys = 0;

/** Adds a message that the server does not have yet, and shows it. */
export function addMessage(tree: Tree, draft: Pick<Message, "parent" | "role" | "text" | "status">): Message {
  numKeys += 1;
  const key = `local-${numKeys}`;
  tree.messages[key] = { ...draft, key, id: null, responseId: null, createdAt: Date.now() / 1000 };
  tree.chosen[draft.parent ?? ""] = key;
  return tree.messages[key];
}

/** Children of each parent (null: the root), oldest first. */
export type Branches = Map<string | null, Message[]>;

export function branchesOf(tree: Tree): Branches {
  return Map.groupBy(Object.values(tree.messages), (message) => message.parent);
}

/** The messages that are shown, first to last. */
export function visiblePath(tree: Tree, branches: Branches = branchesOf(tree)): Message[] {
  const path: Message[] = [];
  for (let parent: string | null = null; ; parent = path.at(-1)!.key) {
    const children: Message[] = branches.get(parent) ?? [];
    const next = children.find(({ key }) => key === tree.chosen[parent ?? ""]) ?? children.at(-1);
    if (!next) return path;
    path.push(next);
  }
}

/** Shows this message in place of its siblings. */
export function choose(tree: Tree, message: Message): void {
  tree.chosen[message.parent ?? ""] = message.key;
}

/** Removes a message with everything below it; answers what was removed, leaves first. */
export function removeBranch(tree: Tree, message: Message): Message[] {
  const children = Object.values(tree.messages).filter(({ parent }) => parent === message.key);
  const removed = children.flatMap((child) => removeBranch(tree, child));
  delete tree.messages[message.key];
  delete tree.chosen[message.key];
  if (tree.chosen[message.parent ?? ""] === message.key) delete tree.chosen[message.parent ?? ""];
  return [...removed, message];
}

/** The nearest message from this one upwards that the server has; null stands for the root. */
export function nearestStored(tree: Tree, message: Message | undefined): Message | null {
  let current = message;
  while (current && current.id === null) current = tree.messages[current.parent ?? ""];
  return current ?? null;
}

export function findById(tree: Tree, id: string): Message | undefined {
  return Object.values(tree.messages).find((message) => message.id === id);
}

/**
 * Takes over what the server holds: `items` are all of a conversation's, oldest first. `before` are the ids that this
 * page knew when it asked for them.
 *
 * Messages of this page that the server does not have yet stay; those it has no longer go. An answer that streams in
 * stays and keeps its text, for its events know more than the list.
 */
export function mergeItems(tree: Tree, items: Item[], before: ReadonlySet<string> = idsOf(tree)): void {
  const keyOf = new Map<string, string>();
  for (const item of items) {
    const known = findById(tree, item.id) ?? findAwaited(tree, item);
    const key = known?.key ?? item.id;
    keyOf.set(item.id, key);
    if (!known) tree.messages[key] = messageOf(item, key, keyOf);
    else if (isRunning(known)) known.id = item.id;
    else Object.assign(known, messageOf(item, key, keyOf), isFailure(known, item) ? { status: known.status } : {});
  }
  for (const message of Object.values(tree.messages)) {
    const isGone = message.id !== null && before.has(message.id) && !keyOf.has(message.id);
    if (isGone && !isKeptBelow(tree, message)) removeBranch(tree, message);
  }
}

export function idsOf(tree: Tree): Set<string> {
  return new Set(Object.values(tree.messages).flatMap(({ id }) => id ?? []));
}

/** What this page has asked for, while the event that tells its id is on the way. */
function findAwaited(tree: Tree, { role, response_id }: Item): Message | undefined {
  const unnamed = Object.values(tree.messages).filter(({ id }) => id === null);
  const answer = unnamed.find(({ responseId }) => responseId !== null && responseId === response_id);
  return role === "assistant" ? answer : unnamed.find(({ key }) => key === answer?.parent);
}

/** An item does not tell that its answer has failed, only that it is not whole. */
function isFailure(known: Message, item: Item): boolean {
  return known.status === "failed" && item.status === "incomplete";
}

/** What streams is written to the store a little later, or never where that is away: a list of items may lack it. */
function isKeptBelow(tree: Tree, message: Message): boolean {
  const kept = Object.values(tree.messages).filter((answer) => isRunning(answer) || answer.extras?.saved === false);
  return kept.some((answer) => isAncestor(tree, message, answer));
}

function isAncestor(tree: Tree, ancestor: Message, message: Message | undefined): boolean {
  for (let current = message; current; current = tree.messages[current.parent ?? ""]) {
    if (current.key === ancestor.key) return true;
  }
  return false;
}

function messageOf(item: Item, key: string, keyOf: Map<string, string>): Message {
  return {
    key,
    id: item.id,
    parent: item.parent_id ? (keyOf.get(item.parent_id) ?? null) : null,
    role: item.role === "developer" ? "system" : item.role,
    text: textOf(item),
    status: item.status,
    responseId: item.response_id ?? null,
    createdAt: item.created_at ?? 0,
  };
}

export function isRunning(message: Message): boolean {
  return message.status === "queued" || message.status === "in_progress";
}
