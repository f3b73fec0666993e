/** The interface in the reader's language. Words live in the JSON files beside this one. */

import arabic from "./ar.json";
import english from "./en.json";

export type MessageKey = keyof typeof english;

type Message = string | Partial<Record<Intl.LDMLPluralRule, string>>;
export type Messages = Record<MessageKey, Message>;

export const LANGUAGES = {
  en: { name: "English", direction: "ltr", messages: english as Messages },
  ar: { name: "العربية", direction: "rtl", messages: arabic as Messages },
} as const;

export type Language = keyof typeof LANGUAGES;

export function isLanguage(value: unknown): value is Language {
  return typeof value === "string" && value in LANGUAGES;
}

const current = $state<{ language: Language }>({ language: "en" });

export function language(): Language {
  return current.language;
}

export function setLanguage(value: Language): void {
  current.language = value;
  document.documentElement.lang = value;
  document.documentElement.dir = LANGUAGES[value].direction;
}

/** The message of a key, with `{name}` replaced by values. A number `count` picks the plural form. */
export function t(key: MessageKey, values: Record<string, string | number> = {}): string {
  const message = LANGUAGES[current.language].messages[key];
  const form = typeof message === "string" ? message : pluralForm(message, Number(values.count));
  return form.replace(/\{(\w+)\}/g, (_, name: string) => formatValue(values[name]));
}

/** A number as this language writes it; Arabic with Latin digits, as code and token counts are everywhere. */
export function formatNumber(value: number, options: Intl.NumberFormatOptions = {}): string {
  return new Intl.NumberFormat(`${current.language}-u-nu-latn`, options).format(value);
}

function pluralForm(forms: Partial<Record<Intl.LDMLPluralRule, string>>, count: number): string {
  return forms[new Intl.PluralRules(current.language).select(count)] ?? forms.other ?? "";
}

function formatValue(value: string | number | undefined): string {
  return typeof value === "number" ? formatNumber(value) : (value ?? "");
}
