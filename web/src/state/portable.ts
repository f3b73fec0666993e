/**
 * Conversations as files: Markdown to read what is shown, JSON to keep the whole tree and to bring it back.
 *
 * In a file a message names its parent by its place in the list, so parents stand before their children.
 */

import type { Chat } from "./chat.svelte";
import type { Message } from "./tree";

const FORMAT = "chatsrv.conversation";
const VERSION = 2;

export interface PortableMessage {
  /** Place of the message that it follows; null at the root. */
  parent: number | null;
  role: Message["role"];
  text: string;
  /** Shown in place of its siblings. */
  shown?: boolean;
}

export interface PortableConversation {
  title: string;
  metadata: Record<string, string>;
  messages: PortableMessage[];
}

/** A run of messages each of which follows the one before it, so that one request can carry it. */
export interface Chain {
  /** Place of the message that the first one follows; null at the root. */
  parent: number | null;
  /** Places of the messages. */
  places: number[];
}

/** All branches, with the settings of the conversation. */
export function toJson(chat: Pick<Chat, "title" | "tree" | "path">, metadata: Record<string, string>): string {
  const shown = new Set(chat.path.map(({ key }) => key));
  const ordered = parentsFirst(Object.values(chat.tree.messages));
  const places = new Map(ordered.map(({ key }, place) => [key, place]));
  const messages = ordered.map(({ key, parent, role, text }): PortableMessage => ({
    parent: parent === null ? null : places.get(parent)!,
    role,
    text,
    ...(shown.has(key) ? { shown: true } : {}),
  }));
  return `${JSON.stringify({ format: FORMAT, version: VERSION, title: chat.title, metadata, messages }, null, 2)}\n`;
}

/** null where the text is no such file. */
export function fromJson(text: string): PortableConversation | null {
  try {
    const value: unknown = JSON.parse(text);
    return isPortable(value) ? value : null;
  } catch {
    return null;
  }
}

export function toMarkdown(title: string, path: Message[], names: Record<Message["role"], string>): string {
  const parts = path.map(({ role, text }) => `## ${names[role]}\n\n${text.trim()}\n`);
  return [`# ${title}\n`, ...parts].join("\n");
}

/** Cuts a tree into chains of at most `maxLength`, such that whoever adds them in turn keeps the order of siblings. */
export function chainsOf(messages: PortableMessage[], maxLength: number): Chain[] {
  const chains: Chain[] = [];
  messages.forEach(({ parent }, place) => {
    const chain = chains.at(-1);
    if (chain?.places.at(-1) === parent && chain.places.length < maxLength) chain.places.push(place);
    else chains.push({ parent, places: [place] });
  });
  return chains;
}

function parentsFirst(messages: Message[]): Message[] {
  const children = Map.groupBy(messages, ({ parent }) => parent);
  const ordered: Message[] = [];
  // A list and not recursion: a conversation may be deeper than the stack.
  const open = [...(children.get(null) ?? [])].reverse();
  for (let message = open.pop(); message; message = open.pop()) {
    ordered.push(message);
    open.push(...[...(children.get(message.key) ?? [])].reverse());
  }
  return ordered;
}

function isPortable(value: unknown): value is PortableConversation {
  if (!isRecord(value) || value.format !== FORMAT || value.version !== VERSION) return false;
  if (!Array.isArray(value.messages) || !value.messages.every(isMessage)) return false;
  const areTexts = isRecord(value.metadata) && Object.values(value.metadata).every((entry) => typeof entry === "string");
  return typeof value.title === "string" && areTexts;
}

function isMessage(value: unknown, place: number): boolean {
  if (!isRecord(value) || typeof value.text !== "string") return false;
  return ["user", "assistant", "system"].includes(String(value.role)) && isEarlier(value.parent, place);
}

function isEarlier(parent: unknown, place: number): boolean {
  return parent === null || (Number.isInteger(parent) && Number(parent) >= 0 && Number(parent) < place);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
