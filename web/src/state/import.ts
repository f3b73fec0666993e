/** Brings a conversation from a file to the server, with all its branches. */

import { MAX_NEW_ITEMS, api } from "../protocol/api";
import { chainsOf, type PortableConversation } from "./portable";

export interface Imported {
  id: string;
  /** Ids of the messages that are shown, first to last. */
  shownIds: string[];
}

/** All or nothing: what was made of a file that could not be brought in whole is deleted again. */
export async function importConversation({ metadata, messages }: PortableConversation): Promise<Imported> {
  const { id } = await api.createConversation(metadata);
  const ids: string[] = [];
  try {
    for (const { parent, places } of chainsOf(messages, MAX_NEW_ITEMS)) {
      const items = places.map((place) => ({ role: messages[place]!.role, content: messages[place]!.text }));
      const { data } = await api.addItems(id, items, parent === null ? "root" : ids[parent]!);
      ids.push(...data.map((item) => item.id));
    }
  } catch (error) {
    await api.deleteConversation(id).catch(() => undefined);
    throw error;
  }
  return { id, shownIds: ids.filter((_, place) => messages[place]!.shown) };
}
