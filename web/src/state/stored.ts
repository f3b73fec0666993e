/** Small things kept in this browser. A browser that keeps nothing is fine too. */

const PREFIX = "chatsrv.";

/** What may stay in a browser that somebody has signed out of: how the page looks. */
const PUBLIC = new Set(["theme", "language", "sidebar"].map((name) => PREFIX + name));

export function readStored(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name);
  } catch {
    return null;
  }
}

/** null forgets it. */
export function writeStored(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // Storage is off or full: the value lasts as long as the page.
  }
}

/** Forgets all that tells of a person: drafts, running answers, what their key allows. */
export function forgetPrivate(): void {
  try {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX) && !PUBLIC.has(name));
    for (const name of names) localStorage.removeItem(name);
  } catch {
    // Storage is off: there is nothing to forget.
  }
}
