/** Small things kept in this browser. A browser that keeps nothing is fine too. */

const PREFIX = "chatsrv.";

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
