import { expect, it } from "vitest";
import type { Conversation } from "../protocol/types";
import { groupByAge } from "./age";

const now = new Date(2026, 2, 15, 0, 30);

function used(id: string, ...time: [number, number, number, number]): Conversation {
  const seconds = new Date(...time).getTime() / 1000;
  return { id, created_at: seconds, last_used_at: seconds, metadata: {} };
}

it("groups by calendar days, not by hours", () => {
  const entries = [
    used("a", 2026, 2, 15, 0),
    used("b", 2026, 2, 14, 23),
    used("c", 2026, 2, 13, 12),
    used("d", 2026, 1, 20, 12),
    used("e", 2024, 1, 1, 0),
  ];
  const groups = groupByAge(entries, now).map(({ name, entries }) => [name, ...entries.map(({ id }) => id)]);
  expect(groups).toEqual([
    ["list.today", "a"],
    ["list.yesterday", "b"],
    ["list.week", "c"],
    ["list.month", "d"],
    ["list.earlier", "e"],
  ]);
});

it("takes a clock that is ahead of ours for today", () => {
  expect(groupByAge([used("a", 2026, 2, 16, 5)], now)[0]?.name).toBe("list.today");
});
