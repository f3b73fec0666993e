/** Theme and language: kept in this browser, put on the root element. `public/theme.js` does the same before paint. */

import { isLanguage, language, setLanguage, type Language } from "../i18n/messages.svelte";
import { readStored, writeStored } from "./stored";

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

function isTheme(value: unknown): value is Theme {
  return THEMES.includes(value as Theme);
}

class Preferences {
  #theme: Theme = $state("system");

  get theme(): Theme {
    return this.#theme;
  }

  set theme(theme: Theme) {
    this.#theme = theme;
    writeStored("theme", theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  get language(): Language {
    return language();
  }

  set language(value: Language) {
    writeStored("language", value);
    setLanguage(value);
  }

  /** Takes what this browser kept, or what it says of its reader. */
  restore(): void {
    const theme = readStored("theme");
    if (isTheme(theme)) this.theme = theme;
    const [preferred] = [readStored("language"), ...navigator.languages.map((name) => name.split("-")[0])].filter(
      isLanguage,
    );
    setLanguage(preferred ?? "en");
  }
}

export const preferences = new Preferences();
