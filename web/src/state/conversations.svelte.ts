/** The list of conversations, last used first, as far as it was read. */

import { api } from "../protocol/api";
import type { Conversation } from "../protocol/types";
import type { Chat } from "./chat.svelte";

const SEARCH_DELAY_MS = 200;

export class ConversationList {
  entries: Conversation[] = $state([]);
  query = $state("");
  isLoaded = $state(false);
  hasMore = $state(false);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #numReads = 0;

  /** Reads the first page again. */
  async refresh(): Promise<void> {
    this.#numReads += 1;
    const read = this.#numReads;
    const page = await api.listConversations(this.query.trim(), null);
    // An answer that was overtaken by a later question is stale.
    if (read !== this.#numReads) return;
    this.entries = page.data;
    this.hasMore = page.has_more;
    this.isLoaded = true;
  }

  async readMore(): Promise<void> {
    const page = await api.listConversations(this.query.trim(), this.entries.at(-1)?.id ?? null);
    this.entries.push(...page.data);
    this.hasMore = page.has_more;
  }

  search(query: string): void {
    this.query = query;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), SEARCH_DELAY_MS);
  }

  /** Moves an open conversation to the top, or puts it there if it is new. */
  touch({ id, title }: Chat): void {
    if (id === null) return;
    const now = Date.now() / 1000;
    const known = this.entries.find((entry) => entry.id === id);
    const entry = known ?? { id, created_at: now, last_used_at: now, metadata: {} };
    entry.metadata = { ...entry.metadata, title };
    entry.last_used_at = now;
    this.entries = [entry, ...this.entries.filter((other) => other.id !== id)];
  }

  async remove(id: string): Promise<void> {
    await api.deleteConversation(id);
    this.entries = this.entries.filter((entry) => entry.id !== id);
  }
}
