/** Conversations as files: Markdown to read, JSON to keep and to bring back. */

import type { Chat } from "./chat.svelte";
import type { Message } from "./tree";

const FORMAT = "chatsrv.conversation";

export interface PortableMessage {
  role: Message["role"];
  text: string;
}

export interface PortableConversation {
  title: string;
  metadata: Record<string, string>;
  messages: PortableMessage[];
}

/** The visible path, with the settings of the conversation. */
export function toJson(chat: Pick<Chat, "title" | "path">, metadata: Record<string, string>): string {
  const messages = chat.path.map(({ role, text }) => ({ role, text }));
  return `${JSON.stringify({ format: FORMAT, version: 1, title: chat.title, metadata, messages }, null, 2)}\n`;
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

function isPortable(value: unknown): value is PortableConversation {
  if (!isRecord(value) || value.format !== FORMAT || !Array.isArray(value.messages)) return false;
  const areTexts = isRecord(value.metadata) && Object.values(value.metadata).every((entry) => typeof entry === "string");
  return typeof value.title === "string" && areTexts && value.messages.every(isMessage);
}

function isMessage(value: unknown): boolean {
  return isRecord(value) && ["user", "assistant", "system"].includes(String(value.role)) && typeof value.text === "string";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
