import { afterEach, describe, expect, it } from "vitest";
import { LANGUAGES, setLanguage, t, type MessageKey, type Messages } from "./messages.svelte";

afterEach(() => setLanguage("en"));

const english = LANGUAGES.en.messages;

function placeholders(messages: Messages, key: MessageKey): string[] {
  const message = messages[key];
  const forms = typeof message === "string" ? [message] : [message.other ?? ""];
  return forms.flatMap((form) => form.match(/\{\w+\}/g) ?? []).sort();
}

describe.each(Object.entries(LANGUAGES))("%s", (name, { messages }) => {
  it("has every message and no other", () => {
    expect(Object.keys(messages).sort()).toEqual(Object.keys(english).sort());
  });

  it("has the same placeholders", () => {
    for (const key of Object.keys(english) as MessageKey[]) {
      expect([key, ...placeholders(messages, key)]).toEqual([key, ...placeholders(english, key)]);
    }
  });

  it("has every plural form that the language needs", () => {
    const { pluralCategories } = new Intl.PluralRules(name).resolvedOptions();
    for (const message of Object.values(messages)) {
      if (typeof message === "object") expect(Object.keys(message)).toEqual(expect.arrayContaining(pluralCategories));
    }
  });
});

it("has no message that nothing shows", () => {
  const files = import.meta.glob<string>("../**/*.{svelte,ts}", { query: "?raw", import: "default", eager: true });
  const sources = Object.values(files).join();
  // Names of states, themes and the like are put together.
  const isUsed = (key: string) => sources.includes(`"${key}"`) || /^(problem|preferences\.theme|settings\.priority|engine\.(mode|state|request|scene|sight))\./.test(key);
  expect(Object.keys(english).filter((key) => !isUsed(key))).toEqual([]);
});

describe("t", () => {
  it("fills in values and picks the plural form", () => {
    expect(t("answer.tokens", { count: 1 })).toBe("1 token");
    expect(t("answer.tokens", { count: 1234 })).toBe("1,234 tokens");
  });

  it("follows the language and turns the page", () => {
    setLanguage("ar");
    expect(t("answer.tokens", { count: 2 })).toBe("رمزان");
    expect(document.documentElement.dir).toBe("rtl");
  });
});
