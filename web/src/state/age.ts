/** Conversations under headings that say how long ago they were used. */

import type { MessageKey } from "../i18n/messages.svelte";
import type { Conversation } from "../protocol/types";

export interface AgeGroup {
  name: MessageKey;
  entries: Conversation[];
}

const GROUPS: { name: MessageKey; maxDays: number }[] = [
  { name: "list.today", maxDays: 0 },
  { name: "list.yesterday", maxDays: 1 },
  { name: "list.week", maxDays: 7 },
  { name: "list.month", maxDays: 30 },
  { name: "list.earlier", maxDays: Infinity },
];

/** Empty groups are left out; the order of entries is kept. */
export function groupByAge(entries: Conversation[], now: Date): AgeGroup[] {
  const groups = GROUPS.map(({ name }) => ({ name, entries: [] as Conversation[] }));
  for (const entry of entries) {
    const days = daysBetween(new Date(entry.last_used_at * 1000), now);
    groups[GROUPS.findIndex(({ maxDays }) => days <= maxDays)]!.entries.push(entry);
  }
  return groups.filter((group) => group.entries.length > 0);
}

/** Midnights between two times, by the reader's calendar. */
function daysBetween(earlier: Date, later: Date): number {
  return Math.round((midnight(later) - midnight(earlier)) / 86_400_000);
}

function midnight(time: Date): number {
  return new Date(time.getFullYear(), time.getMonth(), time.getDate()).getTime();
}
