import { afterEach, describe, expect, it } from "vitest";
import { setLanguage } from "./messages.svelte";
import { explain, explainInLine } from "./problems";

afterEach(() => setLanguage("en"));

describe("explain", () => {
  it("has words of the reader's language for what happens often", () => {
    expect(explain({ code: "queue_full" })).toContain("Too many are waiting");
    setLanguage("ar");
    expect(explain({ code: "queue_full" })).toContain("ينتظر كثيرون");
  });

  it("has none for the rest", () => {
    expect(explain({ code: "invalid_value" })).toBeNull();
    expect(explain({ code: null })).toBeNull();
  });

  it("keeps the server's words apart from those around them", () => {
    expect(explainInLine({ code: "invalid_value", message: "top_p: must be at most 1" })).toBe(
      "\u2068top_p: must be at most 1\u2069",
    );
  });
});
