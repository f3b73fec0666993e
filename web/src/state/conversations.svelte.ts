/** The list of conversations, last used first, as far as it was read. */

import { ApiError, api } from "../protocol/api";
import { CONVERSATION_GONE, type Conversation } from "../protocol/types";
import type { Chat } from "./chat.svelte";

const SEARCH_DELAY_MS = 200;

export class ConversationList {
  entries: Conversation[] = $state([]);
  query = $state("");
  isLoaded = $state(false);
  hasMore = $state(false);
  /** Some of the list is on its way. */
  isReading = $state(false);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #numReads = 0;

  /** Reads again as much as is listed, at least the first page. */
  async refresh(): Promise<void> {
    await this.#replace(this.entries.length);
  }

  /** Reads on where the list ends. Does nothing while the list is read. */
  async readMore(): Promise<void> {
    if (this.isReading) return;
    try {
      const found = await this.#read(this.entries, 1);
      this.entries.push(...without(this.entries, found ?? []));
    } catch (error) {
      // The last one that is listed is there no more.
      if (!(error instanceof ApiError && error.body.param === "after")) throw error;
      await this.refresh();
    }
  }

  search(query: string): void {
    this.query = query;
    clearTimeout(this.#timer);
    // Without a connection it is read when there is one again.
    this.#timer = setTimeout(() => void this.#replace(1).catch(() => undefined), SEARCH_DELAY_MS);
  }

  /** Moves a conversation to the top, or puts it there if it is new. A search finds no more by that. */
  touch({ id, title }: Pick<Chat, "id" | "title">): void {
    const known = this.entries.find((entry) => entry.id === id);
    if (id === null || (!known && this.query.trim())) return;
    const now = Date.now() / 1000;
    const entry = known ?? { id, created_at: now, last_used_at: now, metadata: {} };
    entry.metadata = { ...entry.metadata, title };
    entry.last_used_at = now;
    this.entries = [entry, ...this.entries.filter((other) => other.id !== id)];
  }

  /** Lists a conversation by the name that it turned out to have, where it is. */
  rename({ id, title }: Pick<Chat, "id" | "title">): void {
    const entry = this.entries.find((known) => known.id === id);
    if (entry) entry.metadata = { ...entry.metadata, title };
  }

  /** Deletes a conversation; another page may have been faster. */
  async remove(id: string): Promise<void> {
    await api.deleteConversation(id).catch((error: unknown) => {
      if (!(error instanceof ApiError && error.body.code === CONVERSATION_GONE)) throw error;
    });
    this.drop(id);
  }

  /** Lists it no more. */
  drop(id: string): void {
    this.entries = this.entries.filter((entry) => entry.id !== id);
  }

  async #replace(count: number): Promise<void> {
    const found = await this.#read([], count);
    if (!found) return;
    this.entries = found;
    this.isLoaded = true;
  }

  /**
   * Reads on after those that are `listed` until `count` others are found, or all; what was used meanwhile has another
   * place, so that a page may tell of it once more. Answers null where a later read has overtaken this one.
   */
  async #read(listed: Conversation[], count: number): Promise<Conversation[] | null> {
    this.#numReads += 1;
    const read = this.#numReads;
    const found: Conversation[] = [];
    this.isReading = true;
    try {
      for (let after = listed.at(-1)?.id ?? null; ; ) {
        const page = await api.listConversations(this.query.trim(), after);
        if (read !== this.#numReads) return null;
        this.hasMore = page.has_more;
        found.push(...without([...listed, ...found], page.data));
        if (found.length >= count || !page.has_more) return found;
        after = page.last_id;
      }
    } finally {
      if (read === this.#numReads) this.isReading = false;
    }
  }
}

/** Those of `entries` that are not `listed`. */
function without(listed: Conversation[], entries: Conversation[]): Conversation[] {
  const ids = new Set(listed.map(({ id }) => id));
  return entries.filter(({ id }) => !ids.has(id));
}
